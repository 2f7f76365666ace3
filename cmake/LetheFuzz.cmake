# lethe_fuzz(NAME SOURCES files... CORPUS folder [INCLUDES folders...] [FLAGS words...]): a libFuzzer program
# NAME, built by clang whatever the compiler of the project is, and a test fuzz.NAME that runs it for 20 s. The
# sources are compiled anew with sanitizers, so they must be torch-free. INCLUDES: folders of foreign headers;
# FLAGS: further words for the compiler, after the sources: definitions, libraries. Does nothing where clang or its fuzzer runtime is absent: the same
# target then runs only as a replay inside test_plain.
set(LETHE_FUZZ AUTO CACHE STRING "libFuzzer programs: ON, OFF, or AUTO = where clang and its runtime exist")

set(LETHE_FUZZ_FLAGS -std=c++20 -O1 -g1 -fno-sanitize-recover=all -fsanitize=fuzzer,address,undefined)

set(LETHE_HAS_FUZZER OFF)
if(LETHE_FUZZ)
  find_program(LETHE_FUZZ_CXX NAMES clang++ clang++-19 clang++-16 clang++-15 clang++-14)
  if(LETHE_FUZZ_CXX)
    file(WRITE "${PROJECT_BINARY_DIR}/fuzz/probe.cpp"
      "#include <string>\nextern \"C\" int LLVMFuzzerTestOneInput(const unsigned char*, std::size_t) { return 0; }\n")
    execute_process(COMMAND "${LETHE_FUZZ_CXX}" ${LETHE_FUZZ_FLAGS} probe.cpp -o probe
      WORKING_DIRECTORY "${PROJECT_BINARY_DIR}/fuzz" RESULT_VARIABLE _fuzz_result OUTPUT_QUIET ERROR_QUIET)
    if(_fuzz_result EQUAL 0)
      set(LETHE_HAS_FUZZER ON)
    endif()
  endif()
  if(NOT LETHE_HAS_FUZZER AND NOT LETHE_FUZZ STREQUAL "AUTO")
    message(FATAL_ERROR "LETHE_FUZZ=${LETHE_FUZZ} needs clang++ with its fuzzer runtime (Debian: clang), got '${LETHE_FUZZ_CXX}'")
  endif()
endif()
message(STATUS "libFuzzer programs: ${LETHE_HAS_FUZZER}")

# What a command line needs of an imported target: the file of a library, or the libraries that a target of
# pkg-config stands for.
function(lethe_fuzz_link_line target result)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "INTERFACE_LIBRARY")
    get_target_property(line ${target} INTERFACE_LINK_LIBRARIES)
  else()
    set(line "$<TARGET_FILE:${target}>")
  endif()
  set(${result} ${line} PARENT_SCOPE)
endfunction()

function(lethe_fuzz name)
  cmake_parse_arguments(F "" "CORPUS" "SOURCES;INCLUDES;FLAGS;LIBRARIES" ${ARGN})
  if(NOT LETHE_HAS_FUZZER)
    return()
  endif()
  set(program "${PROJECT_BINARY_DIR}/fuzz/${name}")
  get_target_property(includes nlohmann_json::nlohmann_json INTERFACE_INCLUDE_DIRECTORIES)
  list(APPEND includes ${F_INCLUDES})
  # A compiler's own folder must not be repeated as -isystem: #include_next would no longer find its neighbour.
  list(REMOVE_ITEM includes /usr/include)
  list(TRANSFORM includes PREPEND -isystem)
  file(GLOB headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/lethe/base/*.h" "${PROJECT_SOURCE_DIR}/lethe/config/*.h"
    "${PROJECT_SOURCE_DIR}/lethe/data/*.h" "${PROJECT_SOURCE_DIR}/lethe/io/*.h")
  set(libraries "")
  foreach(library IN LISTS F_LIBRARIES)
    lethe_fuzz_link_line(${library} link_line)
    list(APPEND libraries ${link_line})
  endforeach()
  add_custom_command(OUTPUT "${program}"
    COMMAND "${LETHE_FUZZ_CXX}" ${LETHE_FUZZ_FLAGS} -DFMT_HEADER_ONLY "-I${PROJECT_SOURCE_DIR}"
      -isystem "${PROJECT_BINARY_DIR}/include-first"
      ${includes}
      ${F_SOURCES} ${F_FLAGS} ${libraries} -o "${program}"
    DEPENDS ${F_SOURCES} ${headers}
    COMMENT "Building the fuzzer ${name}" VERBATIM)
  # Not in `all`: a change of one header would rebuild all of them with sanitizers. `make test` builds `fuzz`.
  add_custom_target(fuzz_${name} DEPENDS "${program}")
  if(NOT TARGET fuzz)
    add_custom_target(fuzz)
  endif()
  add_dependencies(fuzz fuzz_${name})
  # New inputs go to the build folder; the committed corpus is only read. The suite's seed is fixed: a change is judged
  # by the same inputs on every machine; `make fuzz` looks further, with a new seed each time.
  file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/fuzz/${name}-corpus")
  add_test(NAME fuzz.${name}
    COMMAND "${program}" -seed=1 -max_total_time=20 -max_len=4096 -timeout=10 -print_final_stats=1
      "${PROJECT_BINARY_DIR}/fuzz/${name}-corpus" "${F_CORPUS}"
    WORKING_DIRECTORY "${PROJECT_BINARY_DIR}/fuzz")
  # The leak check needs ptrace, which containers forbid.
  set_tests_properties(fuzz.${name} PROPERTIES LABELS fuzz TIMEOUT 120 ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0")
endfunction()
