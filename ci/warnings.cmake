# Warnings of our own targets only; third-party headers come in as SYSTEM. Whoever installs a release may have a compiler
# that warns of more.
add_library(lockstep_warnings INTERFACE)
target_compile_options(lockstep_warnings INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wshadow)
if(NOT SKBUILD)
  target_compile_options(lockstep_warnings INTERFACE -Werror)
endif()
