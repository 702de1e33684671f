# Checks that are part of each build: whoever includes against the layers learns it at once.
add_custom_target(layers ALL
    COMMAND ${CMAKE_SOURCE_DIR}/tools/check-layers ${CMAKE_SOURCE_DIR}
    COMMENT "layers" VERBATIM)
