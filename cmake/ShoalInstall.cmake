# With SHOAL_INSTALL, cmake --install: public headers, libshoal and its parts (static and shared) with their .pc files,
# programs, manual pages, systemd unit. Works with --prefix and DESTDIR: nothing installed holds the configured prefix.

# The libraries that a program which links libshoal.a must link as well.
set(SHOAL_REQUIRES_PRIVATE "jansson libxxhash libisal libssl libcrypto liburing zlib libzstd")

# libshoal.a holds one object whose internal symbols are local, so that it can't clash with those of
# the program that links it: what -fvisibility=hidden does for libshoal.so.
if(TARGET shoal_static)
    add_custom_command(TARGET shoal_static POST_BUILD
        COMMAND ${CMAKE_SOURCE_DIR}/tools/hide-symbols ${CMAKE_LINKER} ${CMAKE_OBJCOPY} ${CMAKE_AR}
            $<TARGET_FILE:shoal_static>
        VERBATIM)
endif()
if(TARGET shoal_shared)
    install(TARGETS shoal_static shoal_shared
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
get_property(SHOAL_PARTS GLOBAL PROPERTY SHOAL_PARTS)
foreach(part ${SHOAL_PARTS})
    install(TARGETS ${part}_static ${part}_shared
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(DIRECTORY ${CMAKE_BINARY_DIR}/include/${part} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endforeach()
foreach(program shoal shoald)
    if(TARGET ${program})
        install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
    endif()
endforeach()
install(DIRECTORY include/shoal DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    FILES_MATCHING PATTERN "*.h" PATTERN "*.def")

# The .pc files find the prefix from where they lie themselves.
file(RELATIVE_PATH SHOAL_PC_TO_PREFIX
    ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" SHOAL_PC_TO_PREFIX "${SHOAL_PC_TO_PREFIX}")
configure_file(packaging/shoal.pc.in ${CMAKE_BINARY_DIR}/shoal.pc @ONLY)
foreach(PART ${SHOAL_PARTS})
    foreach(word DESCRIPTION REQUIRES LIBS_PRIVATE)
        get_property(PART_${word} GLOBAL PROPERTY ${PART}_${word})
    endforeach()
    configure_file(packaging/part.pc.in ${CMAKE_BINARY_DIR}/${PART}.pc @ONLY)
endforeach()
foreach(library shoal ${SHOAL_PARTS})
    install(FILES ${CMAKE_BINARY_DIR}/${library}.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

# The manual pages' sections on options and errors come from the tables that the programs use.
add_executable(man_tables tools/man_tables.c)
target_include_directories(man_tables PRIVATE src include)
set_target_properties(man_tables PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tools)
set(pages)
set(part_pages ${SHOAL_PARTS})
list(TRANSFORM part_pages PREPEND lib)
list(TRANSFORM part_pages APPEND .3)
foreach(page shoal.1 shoald.8 libshoal.3 ${part_pages})
    set(made ${CMAKE_BINARY_DIR}/man/${page})
    add_custom_command(OUTPUT ${made}
        COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/man
        COMMAND man_tables ${CMAKE_SOURCE_DIR}/man/${page}.in ${made}
        DEPENDS man_tables ${CMAKE_SOURCE_DIR}/man/${page}.in VERBATIM)
    list(APPEND pages ${made})
    string(REGEX REPLACE ".*\\." "" section ${page})
    install(FILES ${made} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
endforeach()
add_custom_target(manual ALL DEPENDS ${pages})

# A unit names programs by their absolute path, which only the installation knows.
install(CODE "
    set(SHOAL_BINDIR \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}\")
    set(unit \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/systemd/system/shoald@.service\")
    message(STATUS \"Installing: \${unit}\")
    configure_file(\"${CMAKE_SOURCE_DIR}/packaging/shoald@.service.in\" \"\${unit}\" @ONLY)
")
