// pidfd_open(2). glibc 2.36 declares its own without C linkage, so C++ cannot call it.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

namespace lockstep::os {

inline int pidfd_open(pid_t pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }

}  // namespace lockstep::os
