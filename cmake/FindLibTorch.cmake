# LibTorch from a Python wheel (or any folder with include/ and lib/), without TorchConfig.cmake:
# that file makes a CUDA toolkit a configure-time requirement (spec 2-foundations 1.2).
#
#   LibTorch::c10   LibTorch::cpu
# Input : LETHE_TORCH_ROOT        cache variable, then environment; else what ./bootstrap chose; else the
#                                 active python3's torch (found without importing it), else <source>/.venv
#         LETHE_CUDA_RUNTIME_DIR  folder with libcudart and libcupti, where a CUDA wheel needs one
# Output: LibTorch_VERSION, LibTorch_ROOT_DIR, LibTorch_RUNTIME_DIRS, LETHE_TORCH_HAS_CUDA
include(FindPackageHandleStandardArgs)

set(LETHE_TORCH_ROOT "" CACHE PATH "torch folder with include/ and lib/; empty: search")
set(LETHE_CUDA_RUNTIME_DIR "" CACHE PATH "folder with libcudart.so and libcupti.so for a CUDA wheel")

set(_torch_find_spec "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')")
set(LibTorch_ROOT_DIR "")
set(_torch_how "")
# Beside the sources only; an installed copy of this file has no such neighbour.
include("${CMAKE_CURRENT_LIST_DIR}/../build/torch.cmake" OPTIONAL)
if(LETHE_TORCH_ROOT)
  set(LibTorch_ROOT_DIR "${LETHE_TORCH_ROOT}")
  set(_torch_how "LETHE_TORCH_ROOT")
elseif(DEFINED ENV{LETHE_TORCH_ROOT} AND NOT "$ENV{LETHE_TORCH_ROOT}" STREQUAL "")
  set(LibTorch_ROOT_DIR "$ENV{LETHE_TORCH_ROOT}")
  set(_torch_how "environment LETHE_TORCH_ROOT")
elseif(LETHE_BOOTSTRAP_TORCH_ROOT)
  set(LibTorch_ROOT_DIR "${LETHE_BOOTSTRAP_TORCH_ROOT}")
  set(_torch_how "bootstrap")
else()
  foreach(_python python3 "${CMAKE_SOURCE_DIR}/.venv/bin/python")
    execute_process(COMMAND "${_python}" -c "${_torch_find_spec}"
      OUTPUT_VARIABLE _torch_root OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(_torch_root AND EXISTS "${_torch_root}/lib/libtorch_cpu.so")
      set(LibTorch_ROOT_DIR "${_torch_root}")
      set(_torch_how "${_python}")
      break()
    endif()
  endforeach()
endif()

# The version comes from a text file, so that nothing has to be imported or linked to learn it.
if(EXISTS "${LibTorch_ROOT_DIR}/version.py")
  file(STRINGS "${LibTorch_ROOT_DIR}/version.py" _torch_line REGEX "^__version__")
  string(REGEX REPLACE ".*'([0-9.]+).*" "\\1" LibTorch_VERSION "${_torch_line}")
elseif(EXISTS "${LibTorch_ROOT_DIR}/build-version")
  file(STRINGS "${LibTorch_ROOT_DIR}/build-version" _torch_line LIMIT_COUNT 1)
  string(REGEX REPLACE "([0-9.]+).*" "\\1" LibTorch_VERSION "${_torch_line}")
endif()

set(_torch_lib "${LibTorch_ROOT_DIR}/lib")
find_library(LibTorch_C10 c10 PATHS "${_torch_lib}" NO_DEFAULT_PATH NO_CACHE)
find_library(LibTorch_CPU torch_cpu PATHS "${_torch_lib}" NO_DEFAULT_PATH NO_CACHE)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_C10 LibTorch_CPU VERSION_VAR LibTorch_VERSION HANDLE_VERSION_RANGE
  REASON_FAILURE_MESSAGE "no usable torch in '${LibTorch_ROOT_DIR}'. Run ./bootstrap or name one with -DLETHE_TORCH_ROOT=DIR")
if(NOT LibTorch_FOUND)
  return()
endif()

set(LETHE_TORCH_HAS_CUDA OFF)
set(LibTorch_RUNTIME_DIRS "${_torch_lib}")
if(EXISTS "${_torch_lib}/libtorch_cuda.so")
  # libtorch_cpu.so of a CUDA wheel loads libcudart and libcupti even on a machine without a GPU.
  set(LETHE_TORCH_HAS_CUDA ON)
  get_filename_component(_torch_site "${LibTorch_ROOT_DIR}" DIRECTORY)
  file(GLOB _torch_cupti "${_torch_site}/nvidia/*/lib/libcupti.so.*")
  set(_torch_dirs ${LETHE_CUDA_RUNTIME_DIR} $ENV{LETHE_CUDA_RUNTIME_DIR} ${LETHE_BOOTSTRAP_CUDA_DIR})
  foreach(_file IN LISTS _torch_cupti)
    get_filename_component(_dir "${_file}" DIRECTORY)
    list(APPEND _torch_dirs "${_dir}")
  endforeach()
  list(APPEND _torch_dirs /usr/local/cuda-13.0/lib64 /usr/local/cuda/lib64)
  find_path(LibTorch_CUPTI_DIR NAMES libcupti.so.13 libcupti.so.12
    PATHS ${_torch_dirs} NO_CACHE NO_DEFAULT_PATH)
  if(NOT LibTorch_CUPTI_DIR)
    message(FATAL_ERROR "LibTorch: ${LibTorch_ROOT_DIR} is a CUDA build, and its libtorch_cpu.so needs libcupti and "
      "libcudart at load time, found in none of: ${_torch_dirs}; run ./bootstrap, set LETHE_CUDA_RUNTIME_DIR, or: "
      "pip install --no-deps nvidia-cuda-cupti==13.0.85 nvidia-cuda-runtime==13.0.96")
  endif()
  list(APPEND LibTorch_RUNTIME_DIRS "${LibTorch_CUPTI_DIR}")
endif()
message(STATUS "LibTorch ${LibTorch_VERSION} from ${LibTorch_ROOT_DIR} (${_torch_how}), CUDA build: ${LETHE_TORCH_HAS_CUDA}")

if(NOT TARGET LibTorch::c10)
  add_library(LibTorch::c10 SHARED IMPORTED)
  set_target_properties(LibTorch::c10 PROPERTIES IMPORTED_LOCATION "${LibTorch_C10}")
  target_include_directories(LibTorch::c10 SYSTEM INTERFACE
    "${LibTorch_ROOT_DIR}/include" "${LibTorch_ROOT_DIR}/include/torch/csrc/api/include")
  target_compile_definitions(LibTorch::c10 INTERFACE AT_PER_OPERATOR_HEADERS)

  add_library(LibTorch::cpu SHARED IMPORTED)
  set_target_properties(LibTorch::cpu PROPERTIES IMPORTED_LOCATION "${LibTorch_CPU}")
  target_link_libraries(LibTorch::cpu INTERFACE LibTorch::c10)
  # The linker neither searches for nor resolves what libtorch_cpu.so itself needs; and DT_RPATH, which
  # unlike DT_RUNPATH also serves the libraries that libtorch_cpu.so loads (spec 2-foundations 1).
  target_link_options(LibTorch::cpu INTERFACE
    "LINKER:--unresolved-symbols=ignore-in-shared-libs" "LINKER:--disable-new-dtags")
  if(LibTorch_CUPTI_DIR)
    # A program that names libtorch_cpu itself is its loader: only that program's own path is searched.
    target_link_options(LibTorch::cpu INTERFACE "LINKER:-rpath,${LibTorch_CUPTI_DIR}")
  endif()
endif()
