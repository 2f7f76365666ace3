# LibTorch's include folder carries headers of another fmt than the one linked: ours must be found first,
# and /usr/include itself cannot be moved forward. Used by the build and by lethe-config.cmake.
#
# lethe_fmt_first(OUT): OUT = a folder with nothing in it but a link to the fmt headers.
function(lethe_fmt_first out)
  find_path(LETHE_FMT_INCLUDE fmt/format.h REQUIRED)
  mark_as_advanced(LETHE_FMT_INCLUDE)
  set(folder "${CMAKE_BINARY_DIR}/lethe-include-first")
  file(MAKE_DIRECTORY "${folder}")
  file(CREATE_LINK "${LETHE_FMT_INCLUDE}/fmt" "${folder}/fmt" SYMBOLIC)
  set(${out} "${folder}" PARENT_SCOPE)
endfunction()
