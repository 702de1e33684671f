# Compiler settings for every target of the house.
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_C_FLAGS_RELEASE "-O2 -g")
set(CMAKE_C_FLAGS_DEBUG "-O1 -g -DSH_VERIFY_ON")

set(SHOAL_SANITIZE "" CACHE STRING "address+undefined, thread, or empty")
if(SHOAL_SANITIZE)
    # Reports need lines only, and all the rest takes a quarter of the compiler's time.
    set(CMAKE_C_FLAGS_DEBUG "-O1 -g1 -DSH_VERIFY_ON")
endif()
add_compile_definitions(_GNU_SOURCE SHOAL_VERSION="${SHOAL_VERSION}")
add_compile_options(-Wall -Wextra -Werror -Wshadow -Wpointer-arith -Wstrict-prototypes
    -Wmissing-prototypes -Wwrite-strings -Wundef -Wvla -fno-omit-frame-pointer
    -fno-strict-aliasing)
if(SHOAL_SANITIZE STREQUAL "address+undefined")
    add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all)
    add_link_options(-fsanitize=address,undefined)
elseif(SHOAL_SANITIZE STREQUAL "thread")
    # gcc's "tsan does not model atomic_thread_fence" is an error by -Werror, which is what we want:
    # orders are spelled on the accesses (CONTRIBUTING.md).
    add_compile_options(-fsanitize=thread)
    add_link_options(-fsanitize=thread)
endif()
if(SHOAL_FUZZ)
    # Every module tells the fuzzer what it covered; without this, only the fuzz target itself would,
    # and the search would be blind. The targets alone link the fuzzer (ShoalModules.cmake).
    add_compile_options(-fsanitize=fuzzer-no-link)
    add_link_options(-fsanitize=fuzzer-no-link)
endif()
