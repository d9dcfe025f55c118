# Paths in debug information, assertions and sanitizer reports are relative to the root of the repository, wherever
# the build folder is: no binary names the machine that built it, and gdb started at the root finds the sources.
file(RELATIVE_PATH lockstep_up "${CMAKE_BINARY_DIR}" "${CMAKE_SOURCE_DIR}/")
if(NOT lockstep_up MATCHES "/$")  # The build folder is not below the root.
  string(APPEND lockstep_up "/")
endif()
add_compile_options("-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=" "-ffile-prefix-map=${lockstep_up}=")

# ccache, where it is installed, also for builds that do not go through ci/dev. Its base directory makes paths on the
# command line relative, so that a fresh clone in another folder hits the cache of the first.
find_program(LOCKSTEP_CCACHE ccache DOC "Compiler cache; empty for none")
if(LOCKSTEP_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros
    ${LOCKSTEP_CCACHE})
endif()
