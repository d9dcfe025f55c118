#include "harness/diagnose/rights.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <string_view>

#include "harness/os/process_memory.h"

namespace lockstep::diagnose {
namespace {

constexpr int kTraceCapability = 19;  // CAP_SYS_PTRACE

struct Status {
  std::uint32_t uid{};
  std::uint64_t capabilities{};
};

Status status_of(const std::string& process) {
  Status status;
  std::ifstream file("/proc/" + process + "/status");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (name == "Uid:")
      words >> status.uid;
    else if (name == "CapPrm:")
      words >> std::hex >> status.capabilities;
  }
  return status;
}

bool is_refused(std::int32_t pid) {
  char byte = 0;
  return os::read_some(pid, 0x1000, &byte, 1) < 0 && errno == EPERM;
}

}  // namespace

std::optional<int> ptrace_scope() {
  std::ifstream file("/proc/sys/kernel/yama/ptrace_scope");
  int scope = 0;
  return file >> scope ? std::optional(scope) : std::nullopt;
}

bool may_trace_any() { return (status_of("self").capabilities >> kTraceCapability & 1) != 0; }

std::optional<Error> refusal(const Rights& rights) {
  const auto refused = [&](const std::string& have, std::string help) {
    return Error{Error::Kind::kEnvironment,
                 fmt::format("cannot look into process {}: {}", rights.pid, have), std::move(help)};
  };
  if (rights.may_trace_any)
    return rights.same_namespace
               ? std::nullopt
               : std::optional(
                     refused("it is outside of this container, whose rights do not reach it",
                             "run lockstep on the host, or in the container of the process"));
  if (rights.ptrace_scope.value_or(0) == 3)
    return refused("kernel.yama.ptrace_scope is 3: nobody may, until the host starts again",
                   "set it to 0 or 1 in /etc/sysctl.d and start the host again");
  if (rights.ptrace_scope.value_or(0) == 2)
    return refused("kernel.yama.ptrace_scope is 2, need 0, or CAP_SYS_PTRACE",
                   "sysctl kernel.yama.ptrace_scope=0, or run lockstep as root");
  if (rights.uid != rights.our_uid)
    return refused(
        fmt::format("it runs as uid {}, lockstep as uid {} without CAP_SYS_PTRACE; need "
                    "its user, or root",
                    rights.uid, rights.our_uid),
        fmt::format("sudo -u '#{}' lockstep diagnose {}, or as root", rights.uid, rights.pid));
  if (!rights.dumpable)
    return refused(
        "it has made itself undumpable (PR_SET_DUMPABLE 0, or a program with rights of "
        "its own); need CAP_SYS_PTRACE",
        "run lockstep as root, in a container with --cap-add=SYS_PTRACE");
  if (rights.has_more)
    return refused("it has capabilities that lockstep has not, which has no CAP_SYS_PTRACE",
                   "in a container add --cap-add=SYS_PTRACE, else run lockstep as root");
  if (rights.ptrace_scope.value_or(0) == 1)
    return refused("kernel.yama.ptrace_scope is 1, need 0: only who started a process may",
                   "sysctl kernel.yama.ptrace_scope=0, or run lockstep as root, or start the job "
                   "with `lockstep run`");
  return std::nullopt;
}

Rights rights_to(std::int32_t pid) {
  const Status theirs = status_of(std::to_string(pid)), ours = status_of("self");
  Rights rights{.pid = pid, .uid = theirs.uid, .our_uid = ours.uid};
  struct stat owner {};
  // The files of a process that is not dumpable belong to root, its folder does not.
  if (::stat(fmt::format("/proc/{}/environ", pid).c_str(), &owner) == 0)
    rights.dumpable = owner.st_uid == theirs.uid;
  rights.may_trace_any = (ours.capabilities >> kTraceCapability & 1) != 0;
  rights.same_namespace = !rights.may_trace_any || !is_refused(pid);
  rights.has_more = (theirs.capabilities & ~ours.capabilities) != 0;
  rights.ptrace_scope = ptrace_scope();
  return rights;
}

std::optional<Error> why_refused(std::int32_t pid) {
  if (!is_refused(pid))
    return std::nullopt;
  if (std::optional<Error> known = refusal(rights_to(pid)))
    return known;
  return Error{
      Error::Kind::kEnvironment,
      fmt::format("cannot look into process {}: the kernel does not permit it (seccomp, or "
                  "a security module)",
                  pid),
      "in a container add --cap-add=SYS_PTRACE, else run lockstep as root"};
}

}  // namespace lockstep::diagnose
