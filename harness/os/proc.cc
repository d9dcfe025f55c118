#include "harness/os/proc.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "harness/base/check.h"
#include "harness/base/unique_fd.h"

namespace lockstep::os {
namespace {

constexpr std::size_t kFileBytesMax = std::size_t{8} << 20;

// Whole, or empty when it is gone or not permitted. /proc files have no size, so read until the
// end.
std::string read_proc_file(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 4096> chunk{};
  while (fd && text.size() < kFileBytesMax) {
    const ssize_t got = ::read(fd.get(), chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      break;
    text.append(chunk.data(), static_cast<std::size_t>(got));
  }
  return text;
}

template <class T>
T to_number(std::string_view text) {
  T value{};
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// The fields after the command name, which may itself hold spaces and parentheses.
std::vector<std::string_view> fields_after_name(std::string_view stat) {
  std::vector<std::string_view> fields;
  const std::size_t close = stat.rfind(')');
  std::size_t at = close == std::string_view::npos ? stat.size() : close + 2;
  while (at < stat.size()) {
    const std::size_t end = std::min(stat.find_first_of(" \n", at), stat.size());
    fields.push_back(stat.substr(at, end - at));
    at = end + 1;
  }
  return fields;
}

std::vector<std::int32_t> numbered_entries(const std::string& directory) {
  std::vector<std::int32_t> numbers;
  std::error_code error;
  for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end;
       at.increment(error)) {
    const std::int32_t number = to_number<std::int32_t>(at->path().filename().string());
    if (number > 0)
      numbers.push_back(number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

// Of a line "KEY:\t 12" of /proc/PID/status; empty where there is none.
std::string_view value_in(std::string_view status, std::string_view key) {
  const std::size_t at = status.find(fmt::format("\n{}:", key));
  const std::size_t begin =
      at == std::string_view::npos ? at : status.find_first_not_of(" \t", at + key.size() + 2);
  return begin == std::string_view::npos ? std::string_view()
                                         : status.substr(begin, status.find('\n', begin) - begin);
}

std::string wait_channel_in(const std::string& directory) {
  std::string wchan = read_proc_file(directory + "wchan");
  return wchan == "0" ? std::string() : wchan;
}

}  // namespace

std::optional<ProcessStat> read_process(std::int32_t pid) {
  const std::string text = read_proc_file(fmt::format("/proc/{}/stat", pid));
  const std::vector<std::string_view> fields = fields_after_name(text);
  constexpr std::size_t kStartTicks = 19;  // field 22 of the line; state, field 3, is our number 0
  if (fields.size() <= kStartTicks)
    return std::nullopt;
  ProcessStat stat;
  stat.id = {pid, to_number<std::uint64_t>(fields[kStartTicks])};
  stat.state = fields[0].front();
  stat.parent = to_number<std::int32_t>(fields[1]);
  stat.group = to_number<std::int32_t>(fields[2]);
  stat.session = to_number<std::int32_t>(fields[3]);
  stat.threads = to_number<std::int32_t>(fields[17]);
  const std::size_t open = text.find('(');
  stat.name = text.substr(open + 1, text.rfind(')') - open - 1);
  return stat;
}

// Ticks count from boot, and go on while the host sleeps.
std::uint64_t monotonic_ns_of(std::uint64_t start_ticks) {
  const auto read = [](clockid_t clock) {
    timespec now{};
    ::clock_gettime(clock, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(now.tv_nsec);
  };
  const long ticks_a_second = ::sysconf(_SC_CLK_TCK);
  if (start_ticks == 0 || ticks_a_second <= 0)
    return 0;
  const std::uint64_t since_boot =
      start_ticks * (1'000'000'000 / static_cast<std::uint64_t>(ticks_a_second));
  const std::uint64_t awake = read(CLOCK_MONOTONIC);  // First: the two go on between the reads.
  const std::uint64_t asleep = read(CLOCK_BOOTTIME) - awake;
  return since_boot > asleep ? since_boot - asleep : 0;
}

std::uint64_t thread_started_ns(std::int32_t pid, std::int32_t tid) {
  const std::string text = read_proc_file(fmt::format("/proc/{}/task/{}/stat", pid, tid));
  const std::vector<std::string_view> fields = fields_after_name(text);
  constexpr std::size_t kStartTicks = 19;
  return fields.size() <= kStartTicks
             ? 0
             : monotonic_ns_of(to_number<std::uint64_t>(fields[kStartTicks]));
}

std::optional<std::int32_t> zombie_status(const ProcessId& id) {
  const std::string text = read_proc_file(fmt::format("/proc/{}/stat", id.pid));
  const std::vector<std::string_view> fields = fields_after_name(text);
  constexpr std::size_t kStartTicks = 19;
  constexpr std::size_t kExitCode = 49;  // field 52 of the line; 0 for who may not see it
  if (fields.size() <= kExitCode || fields[0] != "Z" ||
      to_number<std::uint64_t>(fields[kStartTicks]) != id.start_ticks)
    return std::nullopt;
  return to_number<std::int32_t>(fields[kExitCode]);
}

std::vector<ProcessStat> read_processes() {
  std::vector<ProcessStat> processes;
  for (const std::int32_t pid : numbered_entries("/proc")) {
    if (std::optional<ProcessStat> stat = read_process(pid))
      processes.push_back(std::move(*stat));
  }
  return processes;
}

std::optional<std::int32_t> last_pid() {
  const std::string averages = read_proc_file("/proc/loadavg");  // its fifth field
  const auto pid =
      to_number<std::int32_t>(std::string_view(averages).substr(averages.find_last_of(' ') + 1));
  return pid > 0 ? std::optional(pid) : std::nullopt;
}

std::vector<std::int32_t> children_of_this_process() {
  std::vector<std::int32_t> children;
  for (const std::int32_t tid : numbered_entries("/proc/self/task")) {
    std::istringstream file(read_proc_file(fmt::format("/proc/self/task/{}/children", tid)));
    for (std::int32_t pid = 0; file >> pid;)
      children.push_back(pid);
  }
  return children;
}

std::vector<ProcessStat> descendants_of(std::int32_t ancestor,
                                        const std::vector<ProcessStat>& processes) {
  std::map<std::int32_t, std::int32_t> parent_of;
  for (const ProcessStat& process : processes)
    parent_of[process.id.pid] = process.parent;
  std::vector<ProcessStat> found;
  for (const ProcessStat& process : processes) {
    std::int32_t at = process.parent;
    // A torn picture could hold a loop, so the climb is bounded.
    for (std::size_t steps = 0; at > 0 && at != ancestor && steps < processes.size(); ++steps) {
      const auto up = parent_of.find(at);
      at = up == parent_of.end() ? 0 : up->second;
    }
    if (at == ancestor && at > 0)
      found.push_back(process);
  }
  return found;
}

std::vector<ThreadStat> read_threads(std::int32_t pid) {
  std::vector<ThreadStat> threads;
  for (const std::int32_t tid : numbered_entries(fmt::format("/proc/{}/task", pid))) {
    const std::string base = fmt::format("/proc/{}/task/{}/", pid, tid);
    const std::string stat = read_proc_file(base + "stat");
    const std::vector<std::string_view> fields = fields_after_name(stat);
    if (fields.empty())
      continue;
    ThreadStat thread{.tid = tid, .state = fields[0].front()};
    thread.wchan = wait_channel_in(base);
    thread.context_switches = to_number<std::uint64_t>(
        value_in(read_proc_file(base + "status"), "voluntary_ctxt_switches"));
    thread.cpu_ns = to_number<std::uint64_t>(read_proc_file(base + "schedstat"));
    threads.push_back(std::move(thread));
  }
  return threads;
}

std::string wait_channel(std::int32_t pid, std::int32_t tid) {
  return wait_channel_in(fmt::format("/proc/{}/task/{}/", pid, tid));
}

std::optional<std::uint64_t> caught_signals(std::int32_t pid) {
  const std::string status = read_proc_file(fmt::format("/proc/{}/status", pid));
  const std::string_view mask = value_in(status, "SigCgt");
  std::uint64_t signals = 0;
  const auto read = std::from_chars(mask.data(), mask.data() + mask.size(), signals, 16);
  return !mask.empty() && read.ec == std::errc() ? std::optional(signals) : std::nullopt;
}

std::size_t count_threads(std::int32_t pid) {
  return numbered_entries(fmt::format("/proc/{}/task", pid)).size();
}

std::optional<std::string> environment_value(std::int32_t pid, std::string_view name) {
  const std::string block = read_proc_file(fmt::format("/proc/{}/environ", pid));
  for (std::size_t at = 0; at < block.size();) {
    const std::size_t end = std::min(block.find('\0', at), block.size());
    const std::string_view entry = std::string_view(block).substr(at, end - at);
    if (entry.size() > name.size() && entry[name.size()] == '=' &&
        entry.compare(0, name.size(), name) == 0)
      return std::string(entry.substr(name.size() + 1));
    at = end + 1;
  }
  return std::nullopt;
}

bool has_environment_entry(std::int32_t pid, std::string_view entry) {
  const std::size_t equals = entry.find('=');
  return equals != std::string_view::npos &&
         environment_value(pid, entry.substr(0, equals)) == entry.substr(equals + 1);
}

std::uint64_t wanted_a_processor_ns(std::int32_t pid) {
  std::ifstream file(fmt::format("/proc/{}/schedstat", pid));
  std::uint64_t ran = 0, waited = 0;
  return file >> ran >> waited ? ran + waited : 0;
}

bool runs(std::int32_t pid, std::int32_t tid) {
  const std::string stat = read_proc_file(fmt::format("/proc/{}/task/{}/stat", pid, tid));
  const std::vector<std::string_view> fields = fields_after_name(stat);
  return !fields.empty() && fields[0] == "R";
}

bool sleeps_in_restartable_wait(std::int32_t pid, std::int32_t tid) {
  const std::string base = fmt::format("/proc/{}/task/{}/", pid, tid);
  const std::string stat = read_proc_file(base + "stat");
  const std::vector<std::string_view> fields = fields_after_name(stat);
  if (fields.empty() || fields[0] != "S")
    return false;
  // "running", or the number of the system call the thread sleeps in.
  const std::string call = read_proc_file(base + "syscall");
  if (call.empty() || call.front() < '0' || call.front() > '9')
    return false;
  switch (to_number<long>(call)) {
    case SYS_futex:
    case SYS_ppoll:
#ifdef SYS_poll
    case SYS_poll:
#endif
      return true;
    case SYS_restart_syscall: {
      // A wait with a timeout that was interrupted before, by a look like ours: the kernel function
      // tells which.
      const std::string where = read_proc_file(base + "wchan");
      return where.starts_with("futex") || where.starts_with("do_poll") ||
             where.starts_with("poll_schedule") || where.starts_with("do_sys_poll");
    }
    default:
      return false;
  }
}

std::vector<std::int32_t> open_descriptors() { return numbered_entries("/proc/self/fd"); }

std::string unique_id() {
  std::array<unsigned char, 16> bytes{};
  LS_CHECK(::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  std::string id;
  for (const unsigned char byte : bytes)
    id += fmt::format("{:02x}", byte);
  return id;
}

}  // namespace lockstep::os
