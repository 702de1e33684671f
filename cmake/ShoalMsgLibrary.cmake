# libshoalmsg, static and shared: msg alone, with what it needs of base and env and nothing else.
#
# Its headers lie in include/shoalmsg of the build folder, made from those of the modules: all of
# msg's but the internal ones, and those that they include. What these headers name is what the
# library shows; everything else is hidden. The sources are compiled once more, since in libshoal
# the same names are hidden.
set(SHOALMSG_REQUIRES_PRIVATE "libxxhash libisal libssl libcrypto liburing")

# Left out of base and env: what msg never calls and what needs libraries of its own.
set(SHOALMSG_LEFT_OUT "/(json|json_place|options.*|errors_print|disk_real)\\.c$")

# The header's text as a stranger sees it. The disk is no part of this library: its interface is left
# out, and a pointer to it stays NULL.
function(shoalmsg_header source text_out)
    file(READ ${source} text)
    string(REPLACE "#include \"env/disk.h\"" "struct sh_disk; /* not in this library: NULL */" text
        "${text}")
    string(REGEX REPLACE "\"(base|env|msg|shoal)/([a-z_]+\\.(h|def))\"" "<shoalmsg/\\2>" text
        "${text}")
    set(${text_out} "${text}" PARENT_SCOPE)
endfunction()

function(shoalmsg_write path text)
    set(old "")
    if(EXISTS ${path})
        file(READ ${path} old)
    endif()
    if(NOT old STREQUAL text)
        file(WRITE ${path} "${text}")
    endif()
endfunction()

# Writes the headers, and the names that they hold, one a line and as a map for the linker.
function(shoalmsg_headers folder)
    file(GLOB headers CONFIGURE_DEPENDS src/msg/*.h)
    list(FILTER headers EXCLUDE REGEX "(_int|_test|/memwire)\\.h$")
    foreach(header base/bytes.h base/crew.h base/log.h env/env.h env/wire.h)
        list(APPEND headers ${CMAKE_SOURCE_DIR}/src/${header})
    endforeach()
    foreach(header err.h err.def types.h)
        list(APPEND headers ${CMAKE_SOURCE_DIR}/include/shoal/${header})
    endforeach()
    set(names)
    foreach(header ${headers})
        shoalmsg_header(${header} text)
        get_filename_component(name ${header} NAME)
        shoalmsg_write(${folder}/include/shoalmsg/${name} "${text}")
        string(REGEX MATCHALL "sh(oal)?_[a-z0-9_]+\\(" found "${text}")
        list(APPEND names ${found})
    endforeach()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${headers})
    list(TRANSFORM names REPLACE "\\(" "")
    list(REMOVE_DUPLICATES names)
    list(SORT names)
    list(JOIN names "\n" lines)
    list(JOIN names ";\n    " globals)
    shoalmsg_write(${folder}/shoalmsg.names "${lines}\n")
    shoalmsg_write(${folder}/shoalmsg.map "{\nglobal:\n    ${globals};\nlocal:\n    *;\n};\n")
endfunction()

function(shoalmsg_library)
    file(GLOB sources CONFIGURE_DEPENDS src/base/*.c src/env/*.c src/msg/*.c)
    list(FILTER sources EXCLUDE REGEX "_(test|fuzz)\\.c$")
    list(FILTER sources EXCLUDE REGEX "${SHOALMSG_LEFT_OUT}")
    shoalmsg_headers(${CMAKE_BINARY_DIR})
    add_library(shoalmsg_objects OBJECT ${sources})
    set_target_properties(shoalmsg_objects PROPERTIES C_VISIBILITY_PRESET default)
    target_include_directories(shoalmsg_objects PRIVATE src include)
    foreach(library ${ARGN})
        get_target_property(folders ${library} INTERFACE_INCLUDE_DIRECTORIES)
        if(folders)
            target_include_directories(shoalmsg_objects PRIVATE ${folders})
        endif()
    endforeach()
    foreach(kind STATIC SHARED)
        string(TOLOWER ${kind} suffix)
        add_library(shoalmsg_${suffix} ${kind} $<TARGET_OBJECTS:shoalmsg_objects>)
        set_target_properties(shoalmsg_${suffix} PROPERTIES OUTPUT_NAME shoalmsg
            VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
        target_link_libraries(shoalmsg_${suffix} PRIVATE ${ARGN} m)
    endforeach()
    target_link_options(shoalmsg_shared PRIVATE LINKER:--as-needed
        LINKER:--version-script=${CMAKE_BINARY_DIR}/shoalmsg.map)
    set_target_properties(shoalmsg_shared PROPERTIES
        LINK_DEPENDS ${CMAKE_BINARY_DIR}/shoalmsg.map)
    if(NOT SHOAL_SANITIZE AND NOT SHOAL_FUZZ)
        # What msg calls and the library lacks is found here, not by who links it.
        target_link_options(shoalmsg_shared PRIVATE LINKER:--no-undefined)
    endif()
    # shoal_err_name and its like are in libshoal.a too: weak here, so that a program can link both.
    add_custom_command(TARGET shoalmsg_static POST_BUILD
        COMMAND ${CMAKE_SOURCE_DIR}/tools/hide-symbols ${CMAKE_LINKER} ${CMAKE_OBJCOPY} ${CMAKE_AR}
            $<TARGET_FILE:shoalmsg_static> --keep-global-symbols=${CMAKE_BINARY_DIR}/shoalmsg.names
            --wildcard "--weaken-symbol=shoal_err_*"
        VERBATIM)
endfunction()
