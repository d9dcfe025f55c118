# Warnings of our own targets only; third-party headers come in as SYSTEM.
add_library(lockstep_warnings INTERFACE)
target_compile_options(lockstep_warnings INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror)
