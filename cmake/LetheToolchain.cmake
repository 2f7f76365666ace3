# Compiler launcher, linker, warnings and floating-point rules, in one interface target.
find_program(LETHE_CCACHE ccache)
if(LETHE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The sloppiness lets ccache restore the precompiled header itself (spec 0-style 3.4).
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env
    "CCACHE_SLOPPINESS=pch_defines,time_macros" "${LETHE_CCACHE}")
endif()

add_library(lethe_options INTERFACE)
target_include_directories(lethe_options INTERFACE "${PROJECT_SOURCE_DIR}")
include(LetheFmtFirst)
lethe_fmt_first(_fmt_first)
target_include_directories(lethe_options SYSTEM BEFORE INTERFACE "$<BUILD_INTERFACE:${_fmt_first}>")
target_compile_options(lethe_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor -Woverloaded-virtual
  -Wimplicit-fallthrough
  # Designated initialisers name what differs; the other members have defaults on purpose.
  -Wno-missing-field-initializers
  # A compiler change must not move bits: contraction is written out in kernels/, never implied.
  -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(lethe_options INTERFACE -fpch-preprocess)
endif()
if(LETHE_WERROR)
  target_compile_options(lethe_options INTERFACE -Werror)
endif()

find_program(LETHE_MOLD mold)
if(LETHE_MOLD)
  target_link_options(lethe_options INTERFACE -fuse-ld=mold)
endif()

if(LETHE_SANITIZE)
  if("address" IN_LIST LETHE_SANITIZE AND "thread" IN_LIST LETHE_SANITIZE)
    message(FATAL_ERROR "LETHE_SANITIZE: address and thread exclude each other, got '${LETHE_SANITIZE}'")
  endif()
  list(JOIN LETHE_SANITIZE "," _sanitizers)
  target_compile_options(lethe_options INTERFACE -fsanitize=${_sanitizers} -fno-omit-frame-pointer)
  target_link_options(lethe_options INTERFACE -fsanitize=${_sanitizers})
endif()
