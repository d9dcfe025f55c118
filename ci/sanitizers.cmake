# LOCKSTEP_SANITIZE=address,undefined or thread: every target of the build, since sanitizers do not mix.
set(LOCKSTEP_SANITIZE "" CACHE STRING "Sanitizers for the whole build, as -fsanitize= takes them")
if(LOCKSTEP_SANITIZE)
  add_compile_options(-fsanitize=${LOCKSTEP_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${LOCKSTEP_SANITIZE})
endif()
