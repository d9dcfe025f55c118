# What `cmake --install` and a wheel bring: the program, what the tap is compiled from, the pytest plugin, the header of
# subjects in C++ (and, of a build with LibTorch, the hosts they are loaded into), and ready taps where
# LOCKSTEP_READY_TAPS names a folder of them (ci/dev wheel).
set(LOCKSTEP_READY_TAPS "" CACHE PATH "Folder of taps that are ready: SHIM, and VERSION/TAP for each torch")
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
if(SKBUILD)
  set(_program ${SKBUILD_SCRIPTS_DIR})
  set(_share ${SKBUILD_DATA_DIR}/share/lockstep)
  install(FILES harness/pytest/pytest_lockstep.py DESTINATION ${SKBUILD_PLATLIB_DIR} COMPONENT lockstep)
else()
  set(_program ${CMAKE_INSTALL_BINDIR})
  set(_share ${CMAKE_INSTALL_DATADIR}/lockstep)
endif()
install(TARGETS lockstep RUNTIME DESTINATION ${_program} COMPONENT lockstep)
foreach(folder harness/tap harness/python harness/history ci/gloo_stubs)
  get_filename_component(_parent ${folder} DIRECTORY)
  install(DIRECTORY ${folder} DESTINATION ${_share}/${_parent} COMPONENT lockstep
    FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp" PATTERN "harness/tap/*.c*" PATTERN "CMakeLists.txt" EXCLUDE)
endforeach()
install(DIRECTORY harness/subject harness/watch DESTINATION ${_share}/harness COMPONENT lockstep
  FILES_MATCHING PATTERN "*.py")
install(FILES ci/FindLibTorch.cmake DESTINATION ${_share}/ci COMPONENT lockstep)
install(FILES harness/subject/subject.h DESTINATION ${_share}/../../include/lockstep COMPONENT lockstep)
if(LOCKSTEP_TORCH)
  # What a subject in C++ is loaded into, and what it is held against.
  set_target_properties(lockstep_rank_host_program lockstep_reference_host_program PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS lockstep_rank_host_program lockstep_reference_host_program RUNTIME DESTINATION ${_program} COMPONENT lockstep)
endif()
write_basic_package_version_file(${CMAKE_BINARY_DIR}/LockstepConfigVersion.cmake
  COMPATIBILITY SameMajorVersion ARCH_INDEPENDENT)
install(FILES ci/LockstepConfig.cmake ${CMAKE_BINARY_DIR}/LockstepConfigVersion.cmake
  DESTINATION ${_share}/../../lib/cmake/Lockstep COMPONENT lockstep)
if(LOCKSTEP_READY_TAPS)
  install(DIRECTORY ${LOCKSTEP_READY_TAPS}/ DESTINATION ${_share}/taps COMPONENT lockstep)
endif()
