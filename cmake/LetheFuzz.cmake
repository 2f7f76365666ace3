# lethe_fuzz(NAME SOURCES files... CORPUS folder): a libFuzzer program NAME, built by clang whatever the
# compiler of the project is, and a test fuzz.NAME that runs it for 20 s. The sources are compiled anew with
# sanitizers, so they must be torch-free. Does nothing where clang or its fuzzer runtime is absent: the same
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

function(lethe_fuzz name)
  cmake_parse_arguments(F "" "CORPUS" "SOURCES" ${ARGN})
  if(NOT LETHE_HAS_FUZZER)
    return()
  endif()
  set(program "${PROJECT_BINARY_DIR}/fuzz/${name}")
  get_target_property(json_includes nlohmann_json::nlohmann_json INTERFACE_INCLUDE_DIRECTORIES)
  # A compiler's own folder must not be repeated as -isystem: #include_next would no longer find its neighbour.
  list(REMOVE_ITEM json_includes /usr/include)
  list(TRANSFORM json_includes PREPEND -isystem)
  file(GLOB headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/lethe/base/*.h" "${PROJECT_SOURCE_DIR}/lethe/io/*.h")
  add_custom_command(OUTPUT "${program}"
    COMMAND "${LETHE_FUZZ_CXX}" ${LETHE_FUZZ_FLAGS} -DFMT_HEADER_ONLY "-I${PROJECT_SOURCE_DIR}"
      -isystem "${PROJECT_BINARY_DIR}/include-first"
      ${json_includes}
      ${F_SOURCES} -o "${program}"
    DEPENDS ${F_SOURCES} ${headers}
    COMMENT "Building the fuzzer ${name}" VERBATIM)
  add_custom_target(fuzz_${name} ALL DEPENDS "${program}")
  # New inputs go to the build folder; the committed corpus is only read.
  file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/fuzz/${name}-corpus")
  add_test(NAME fuzz.${name}
    COMMAND "${program}" -max_total_time=20 -max_len=4096 -timeout=10 -print_final_stats=1
      "${PROJECT_BINARY_DIR}/fuzz/${name}-corpus" "${F_CORPUS}"
    WORKING_DIRECTORY "${PROJECT_BINARY_DIR}/fuzz")
  # The leak check needs ptrace, which containers forbid.
  set_tests_properties(fuzz.${name} PROPERTIES LABELS fuzz TIMEOUT 120 ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0")
endfunction()
