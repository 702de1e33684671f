# Parts of shoal that are useful alone: libshoalNAME, static and shared, is one module with what it
# needs of those below it and nothing else.
#
# shoal_part_library(NAME
#     DESCRIPTION "..."          of the .pc file
#     SOURCES GLOB ...           what is compiled, from src/; tests and fuzz targets are left out
#     LEFT_OUT REGEX             none of these sources
#     HEADERS FILE ...           of src/ and include/, besides the module's own
#     HEADERS_LEFT_OUT REGEX     none of the module's own headers but *_int.h, which never are
#     REPLACE TEXT BY ...        pairs; lines of headers that look different outside
#     REQUIRES "PC ..."          what else the static library needs, by pkg-config
#     LIBS_PRIVATE "-l..."       and without it
#     LIBRARIES TARGET ...)      what the sources include and the shared library links
#
# Its headers lie in include/shoalNAME of the build folder, made from those of the modules: all of
# the module's but the internal ones, and those that they include. What these headers name is what
# the library shows; everything else is hidden. The sources are compiled once more, since in libshoal
# the same names are hidden. A manual page (man/libshoalNAME.3.in) and examples (examples/NAME) come
# with it; tools/install-test uses it as a stranger would.
set_property(GLOBAL PROPERTY SHOAL_PARTS "")

function(shoal_part_write path text)
    set(old "")
    if(EXISTS ${path})
        file(READ ${path} old)
    endif()
    if(NOT old STREQUAL text)
        file(WRITE ${path} "${text}")
    endif()
endfunction()

# The header's text as a stranger sees it; `replace` has pairs of texts.
function(shoal_part_header part source replace text_out)
    file(READ ${source} text)
    while(replace)
        list(POP_FRONT replace from to)
        string(REPLACE "\\;" ";" to "${to}")
        string(REPLACE "${from}" "${to}" text "${text}")
    endwhile()
    string(REGEX REPLACE "\"[a-z]+/([a-z_]+\\.(h|def))\"" "<${part}/\\1>" text "${text}")
    set(${text_out} "${text}" PARENT_SCOPE)
endfunction()

# Writes the headers, and the names that they hold, one a line and as a map for the linker.
function(shoal_part_headers part replace)
    set(names)
    foreach(header ${ARGN})
        shoal_part_header(${part} ${header} "${replace}" text)
        get_filename_component(name ${header} NAME)
        shoal_part_write(${CMAKE_BINARY_DIR}/include/${part}/${name} "${text}")
        string(REGEX MATCHALL "sh(oal)?_[a-z0-9_]+\\(" found "${text}")
        list(APPEND names ${found})
    endforeach()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${ARGN})
    list(TRANSFORM names REPLACE "\\(" "")
    list(REMOVE_DUPLICATES names)
    list(SORT names)
    list(JOIN names "\n" lines)
    list(JOIN names ";\n    " globals)
    shoal_part_write(${CMAKE_BINARY_DIR}/${part}.names "${lines}\n")
    shoal_part_write(${CMAKE_BINARY_DIR}/${part}.map
        "{\nglobal:\n    ${globals};\nlocal:\n    *;\n};\n")
endfunction()

# The libraries themselves, of the objects in PART_objects.
function(shoal_part_link part)
    foreach(kind STATIC SHARED)
        string(TOLOWER ${kind} suffix)
        add_library(${part}_${suffix} ${kind} $<TARGET_OBJECTS:${part}_objects>)
        set_target_properties(${part}_${suffix} PROPERTIES OUTPUT_NAME ${part}
            VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
        target_link_libraries(${part}_${suffix} PRIVATE ${ARGN})
    endforeach()
    target_link_options(${part}_shared PRIVATE LINKER:--as-needed
        LINKER:--version-script=${CMAKE_BINARY_DIR}/${part}.map)
    set_target_properties(${part}_shared PROPERTIES LINK_DEPENDS ${CMAKE_BINARY_DIR}/${part}.map)
    if(NOT SHOAL_SANITIZE AND NOT SHOAL_FUZZ)
        # What the part calls and the library lacks is found here, not by who links it.
        target_link_options(${part}_shared PRIVATE LINKER:--no-undefined)
    endif()
    # shoal_err_name and its like are in libshoal.a and the other parts too, the log, the disk and the
    # clock in some of the parts: weak here, so that a program can link them together.
    add_custom_command(TARGET ${part}_static POST_BUILD
        COMMAND ${CMAKE_SOURCE_DIR}/tools/hide-symbols ${CMAKE_LINKER} ${CMAKE_OBJCOPY} ${CMAKE_AR}
            $<TARGET_FILE:${part}_static> --keep-global-symbols=${CMAKE_BINARY_DIR}/${part}.names
            --wildcard "--weaken-symbol=shoal_err_*" "--weaken-symbol=sh_log_*"
            "--weaken-symbol=sh_disk_*" "--weaken-symbol=sh_real_*" "--weaken-symbol=sh_raw_*"
            "--weaken-symbol=sh_memory_disk_*"
        VERBATIM)
endfunction()

function(shoal_part_library name)
    if(NOT SHOAL_INSTALL)
        return()
    endif()
    cmake_parse_arguments(PARSE_ARGV 1 ARG "" "DESCRIPTION;LEFT_OUT;HEADERS_LEFT_OUT;REQUIRES;LIBS_PRIVATE"
        "SOURCES;HEADERS;REPLACE;LIBRARIES")
    set(part shoal${name})
    list(TRANSFORM ARG_SOURCES PREPEND ${CMAKE_SOURCE_DIR}/src/)
    file(GLOB sources CONFIGURE_DEPENDS ${ARG_SOURCES})
    list(FILTER sources EXCLUDE REGEX "_(test|fuzz)\\.c$")
    if(ARG_LEFT_OUT)
        list(FILTER sources EXCLUDE REGEX "${ARG_LEFT_OUT}")
    endif()
    file(GLOB headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.h)
    list(FILTER headers EXCLUDE REGEX "_(int|test)\\.h$")
    if(ARG_HEADERS_LEFT_OUT)
        list(FILTER headers EXCLUDE REGEX "${ARG_HEADERS_LEFT_OUT}")
    endif()
    foreach(header ${ARG_HEADERS} shoal/err.h shoal/err.def shoal/types.h)
        set(folder src)
        if(header MATCHES "^shoal/")
            set(folder include)
        endif()
        list(APPEND headers ${CMAKE_SOURCE_DIR}/${folder}/${header})
    endforeach()
    shoal_part_headers(${part} "${ARG_REPLACE}" ${headers})
    add_library(${part}_objects OBJECT ${sources})
    set_target_properties(${part}_objects PROPERTIES C_VISIBILITY_PRESET default)
    target_include_directories(${part}_objects PRIVATE src include)
    foreach(library ${ARG_LIBRARIES})
        if(TARGET ${library})
            get_target_property(folders ${library} INTERFACE_INCLUDE_DIRECTORIES)
            if(folders)
                target_include_directories(${part}_objects PRIVATE ${folders})
            endif()
        endif()
    endforeach()
    shoal_part_link(${part} ${ARG_LIBRARIES})
    set_property(GLOBAL APPEND PROPERTY SHOAL_PARTS ${part})
    set_property(GLOBAL PROPERTY ${part}_DESCRIPTION "${ARG_DESCRIPTION}")
    set_property(GLOBAL PROPERTY ${part}_REQUIRES "${ARG_REQUIRES}")
    set_property(GLOBAL PROPERTY ${part}_LIBS_PRIVATE "${ARG_LIBS_PRIVATE}")
endfunction()
