# lethe_embed(OUT CONSTANT FILE): a source that defines `extern const std::string_view lethe::report::CONSTANT`
# with the text of FILE, so that a program needs no files beside it. OUT = the generated source.
function(lethe_embed out constant file)
  set(source "${CMAKE_CURRENT_BINARY_DIR}/${constant}.cpp")
  add_custom_command(OUTPUT "${source}"
    COMMAND "${CMAKE_COMMAND}" "-DFILE=${file}" "-DCONSTANT=${constant}" "-DSOURCE=${source}"
      -P "${PROJECT_SOURCE_DIR}/cmake/embed_text.cmake"
    DEPENDS "${file}" "${PROJECT_SOURCE_DIR}/cmake/embed_text.cmake"
    COMMENT "Embedding ${file}" VERBATIM)
  set(${out} "${source}" PARENT_SCOPE)
endfunction()
