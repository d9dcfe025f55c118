# ccache, where it is installed, also for builds that do not go through ci/dev. Its base directory makes a fresh clone
# in another folder hit the cache of the first. Debug information must then not name the first clone, so it holds
# paths that are relative to the repository.
find_program(LOCKSTEP_CCACHE ccache DOC "Compiler cache; empty for none")
if(LOCKSTEP_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  string(FIND "${CMAKE_BINARY_DIR}/" "${CMAKE_SOURCE_DIR}/" lockstep_inside)
  if(lockstep_inside EQUAL 0)
    set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${LOCKSTEP_CCACHE})
    add_compile_options(-ffile-prefix-map=${CMAKE_SOURCE_DIR}=.)
  else()
    set(CMAKE_CXX_COMPILER_LAUNCHER ${LOCKSTEP_CCACHE})
  endif()
endif()
