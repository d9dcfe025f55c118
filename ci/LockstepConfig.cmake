# find_package(Lockstep) of an installed lockstep.
#
#   lockstep_add_test(NAME n RANKS 4 [GPUS 4] [TIMEOUT s] [OPTIONS ...] [LABELS ...] [WORKING_DIRECTORY d]
#                     COMMAND program [argument ...])
#     A test that runs the command once per rank under `lockstep run`. It fails where lockstep finds something or cannot
#     decide. With GPUS each rank asks ctest's resource file for one. TIMEOUT is 300 where none is given; lockstep ends the
#     job itself before that, and judges it.
#
#   lockstep_add_suite(NAME n [TIMEOUT s] [LABELS ...] [ARGUMENTS ...])
#     A test that runs `lockstep suite` with these arguments.
#
#   lockstep_add_subject(NAME n SOURCES file ...)
#     A shared library for `lockstep suite --subject`: data parallelism in C++ behind <lockstep/subject.h>, with the LibTorch
#     of the interpreter LOCKSTEP_PYTHON. The header alone is Lockstep::subject.
#
# Lockstep_EXECUTABLE is the program; 77 (nothing applicable) is a skipped test.
get_filename_component(_lockstep_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
find_program(Lockstep_EXECUTABLE lockstep HINTS "${_lockstep_prefix}/bin" NO_DEFAULT_PATH)
if(NOT Lockstep_EXECUTABLE)
  set(Lockstep_FOUND FALSE)
  set(Lockstep_NOT_FOUND_MESSAGE "there is no program lockstep in ${_lockstep_prefix}/bin; install lockstep anew")
  return()
endif()

# What both kinds of test share.
function(_lockstep_test name ranks timeout labels)
  set_tests_properties(${name} PROPERTIES PROCESSORS ${ranks} TIMEOUT ${timeout} LABELS "lockstep;${labels}" SKIP_RETURN_CODE 77)
endfunction()

function(lockstep_add_test)
  cmake_parse_arguments(PARSE_ARGV 0 ARG "" "NAME;RANKS;GPUS;TIMEOUT;WORKING_DIRECTORY" "COMMAND;OPTIONS;LABELS")
  if(ARG_UNPARSED_ARGUMENTS OR "${ARG_NAME}" STREQUAL "" OR "${ARG_COMMAND}" STREQUAL "" OR NOT "${ARG_RANKS}" MATCHES "^[1-9][0-9]*$")
    message(FATAL_ERROR "lockstep_add_test(${ARGV}): need NAME, RANKS (a number) and COMMAND; not known: ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  # Its report must be on disk before ctest kills it.
  math(EXPR limit "${ARG_TIMEOUT} - ${ARG_TIMEOUT} / 5")
  if(NOT ARG_WORKING_DIRECTORY)
    set(ARG_WORKING_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}")
  endif()
  add_test(NAME ${ARG_NAME} WORKING_DIRECTORY "${ARG_WORKING_DIRECTORY}"
    COMMAND "${Lockstep_EXECUTABLE}" run -n ${ARG_RANKS} --time-limit ${limit} --color never ${ARG_OPTIONS} -- ${ARG_COMMAND})
  _lockstep_test(${ARG_NAME} ${ARG_RANKS} ${ARG_TIMEOUT} "${ARG_LABELS}")
  if(ARG_GPUS)
    set_tests_properties(${ARG_NAME} PROPERTIES RESOURCE_GROUPS "${ARG_GPUS},gpus:1")
  endif()
endfunction()

function(lockstep_add_suite)
  cmake_parse_arguments(PARSE_ARGV 0 ARG "" "NAME;TIMEOUT" "ARGUMENTS;LABELS")
  if(ARG_UNPARSED_ARGUMENTS OR "${ARG_NAME}" STREQUAL "")
    message(FATAL_ERROR "lockstep_add_suite(${ARGV}): need NAME; not known: ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 1200)
  endif()
  add_test(NAME ${ARG_NAME} COMMAND "${Lockstep_EXECUTABLE}" suite --color never ${ARG_ARGUMENTS})
  _lockstep_test(${ARG_NAME} 4 ${ARG_TIMEOUT} "${ARG_LABELS}")
endfunction()

if(NOT TARGET Lockstep::subject)
  add_library(Lockstep::subject INTERFACE IMPORTED)
  set_target_properties(Lockstep::subject PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${_lockstep_prefix}/include")
endif()
set(_lockstep_modules "${_lockstep_prefix}/share/lockstep/ci")

function(lockstep_add_subject)
  cmake_parse_arguments(PARSE_ARGV 0 ARG "" "NAME" "SOURCES")
  if(ARG_UNPARSED_ARGUMENTS OR "${ARG_NAME}" STREQUAL "" OR "${ARG_SOURCES}" STREQUAL "")
    message(FATAL_ERROR "lockstep_add_subject(${ARGV}): need NAME and SOURCES; not known: ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  list(PREPEND CMAKE_MODULE_PATH "${_lockstep_modules}")
  find_package(LibTorch REQUIRED)
  add_library(${ARG_NAME} SHARED ${ARG_SOURCES})
  target_link_libraries(${ARG_NAME} PRIVATE Lockstep::subject LibTorch::torch_cpu)
endfunction()
