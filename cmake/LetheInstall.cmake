# cmake --install: liblethe.so, bin/lethe, the public headers, and the CMake package `lethe`.
# The package is written by hand: objects of many layers make one library, and the exported files must
# name no folder of this machine. LibTorch is looked for again where the package is used.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(_headers GLOBAL PROPERTY LETHE_PUBLIC_HEADERS)
foreach(_header IN LISTS _headers)
  cmake_path(GET _header PARENT_PATH _folder)
  file(RELATIVE_PATH _folder "${PROJECT_SOURCE_DIR}" "${_folder}")
  install(FILES "${_header}" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/${_folder}")
endforeach()

# The only paths of this machine in the installed tree: where LibTorch lies cannot be told by $ORIGIN.
set_target_properties(lethe PROPERTIES INSTALL_RPATH "${LibTorch_RUNTIME_DIRS}")
install(TARGETS lethe LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
if(TARGET lethe_cli)
  set_target_properties(lethe_cli PROPERTIES
    INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR};${LibTorch_RUNTIME_DIRS}")
  install(TARGETS lethe_cli RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()

string(REGEX MATCH "^[0-9]+\\.[0-9]+" LETHE_TORCH_SERIES "${LibTorch_VERSION}")
set(_package "${CMAKE_INSTALL_LIBDIR}/cmake/lethe")
configure_package_config_file(cmake/lethe-config.cmake.in "${PROJECT_BINARY_DIR}/lethe-config.cmake"
  INSTALL_DESTINATION "${_package}" PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/lethe-config-version.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/lethe-config.cmake" "${PROJECT_BINARY_DIR}/lethe-config-version.cmake"
  cmake/FindLibTorch.cmake cmake/LetheFmtFirst.cmake
  DESTINATION "${_package}")

# The text that `lethe train` uses without --data.
install(FILES "${PROJECT_SOURCE_DIR}/examples/data/shakespeare.txt" DESTINATION "${CMAKE_INSTALL_DATADIR}/lethe")
