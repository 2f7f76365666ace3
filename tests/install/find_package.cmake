# Run by ctest: cmake -DBUILD=.. -DSOURCE=.. -DTORCH=.. -DCXX=.. -P find_package.cmake
# Installs the build, checks what the package files say, builds and runs examples/find_package, and
# checks that a torch of another minor version is refused.
set(work "${BUILD}/install-test")
file(REMOVE_RECURSE "${work}")

function(run out)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE text ERROR_VARIABLE text RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\nended with ${status}:\n${text}")
  endif()
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

run(text "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${work}/prefix")

# Exported files name no folder of this machine.
file(GLOB_RECURSE package "${work}/prefix/*.cmake")
list(LENGTH package count)
if(count LESS 4)
  message(FATAL_ERROR "the CMake package has ${count} files, expected at least 4: ${package}")
endif()
foreach(file IN LISTS package)
  file(READ "${file}" text)
  foreach(folder "${SOURCE}" "${BUILD}" "${TORCH}")
    string(FIND "${text}" "${folder}" at)
    if(NOT at EQUAL -1)
      message(FATAL_ERROR "${file} names a folder of the build machine: ${folder}")
    endif()
  endforeach()
endforeach()

set(configure "${CMAKE_COMMAND}" -G Ninja -S "${SOURCE}/examples/find_package"
  "-DCMAKE_PREFIX_PATH=${work}/prefix" "-DCMAKE_CXX_COMPILER=${CXX}")
run(text ${configure} -B "${work}/example" "-DLETHE_TORCH_ROOT=${TORCH}")
run(text "${CMAKE_COMMAND}" --build "${work}/example")
run(text "${work}/example/example")
message(STATUS "example printed:\n${text}")
if(NOT text MATCHES "ShapeError: rms_norm")
  message(FATAL_ERROR "the example did not print the error it provokes:\n${text}")
endif()

# A torch of another series, as far as discovery looks.
set(other "${work}/torch-2.9")
file(WRITE "${other}/version.py" "__version__ = '2.9.1+cpu'\n")
file(WRITE "${other}/lib/libc10.so" "")
file(WRITE "${other}/lib/libtorch_cpu.so" "")
execute_process(COMMAND ${configure} -B "${work}/refused" "-DLETHE_TORCH_ROOT=${other}"
  OUTPUT_QUIET ERROR_VARIABLE text RESULT_VARIABLE status)
string(REGEX REPLACE "[ \n]+" " " text "${text}")
if(status EQUAL 0 OR NOT text MATCHES "was built with torch [0-9.]+, found torch 2\\.9\\.1")
  message(FATAL_ERROR "a torch of another minor version was not refused as it should be: ${status} ${text}")
endif()
file(REMOVE_RECURSE "${work}")
