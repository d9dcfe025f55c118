// Readers of /proc. A process may end between two reads, so everything may be absent.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::os {

/// With pid and start time (clock ticks since boot), a process is meant and not its successor under
/// that pid.
struct ProcessId {
  std::int32_t pid{};
  std::uint64_t start_ticks{};
  friend auto operator<=>(const ProcessId&, const ProcessId&) = default;
};

/// What /proc/PID/stat says.
struct ProcessStat {
  ProcessId id{};
  std::int32_t parent{};
  std::int32_t group{};
  std::int32_t session{};
  char state{};  ///< R S D T t Z X
  std::int32_t threads{};
  std::string name{};  ///< At most 15 bytes.
  /// Ended. (One whose first thread alone has exited looks like it, but lives.)
  [[nodiscard]] bool zombie() const { return (state == 'Z' || state == 'X') && threads <= 1; }
};

struct ThreadStat {
  std::int32_t tid{};
  char state{};
  std::string wchan{};  ///< Where it sleeps in the kernel; empty where hidden or running.
  std::uint64_t context_switches{};  ///< Voluntary: how often it went to sleep.
  std::uint64_t cpu_ns{};
};

std::optional<ProcessStat> read_process(std::int32_t pid);

/// Every process of this pid namespace, by ascending pid.
std::vector<ProcessStat> read_processes();

/// The pid that was given last in this pid namespace, to a process or a thread: as long as it stays
/// the same, none has started. Empty where that is not told.
std::optional<std::int32_t> last_pid();

/// Zombies included, the latest last; from one file per thread, so much faster than
/// read_processes(). Empty where the kernel does not keep such files.
std::vector<std::int32_t> children_of_this_process();

/// Of `processes`, the descendants of `ancestor` (not itself).
std::vector<ProcessStat> descendants_of(std::int32_t ancestor,
                                        const std::vector<ProcessStat>& processes);

/// The wait status of a zombie, as long as nobody has reaped it; none also where it is not told.
std::optional<std::int32_t> zombie_status(const ProcessId& id);

/// All threads, by ascending tid; empty when the process is gone.
std::vector<ThreadStat> read_threads(std::int32_t pid);
/// When it started, on the monotonic clock, to a tick of the kernel's; 0 when it is gone.
std::uint64_t thread_started_ns(std::int32_t pid, std::int32_t tid);
std::uint64_t monotonic_ns_of(std::uint64_t start_ticks);
/// Where a thread sleeps in the kernel; empty where hidden or running.
std::string wait_channel(std::int32_t pid, std::int32_t tid);
/// The signals that a process has handlers for, signal 1 in the lowest bit; none when it is gone.
std::optional<std::uint64_t> caught_signals(std::int32_t pid);
std::size_t count_threads(std::int32_t pid);

/// Whether its environment at exec had exactly `entry` ("NAME=value"). False also when it cannot be
/// read.
bool has_environment_entry(std::int32_t pid, std::string_view entry);

/// The value of a variable of its environment at exec; none also when it cannot be read.
std::optional<std::string> environment_value(std::int32_t pid, std::string_view name);

/// The thread sleeps in a futex or poll wait, which a ptrace stop restarts unseen. False when not
/// known.
bool sleeps_in_restartable_wait(std::int32_t pid, std::int32_t tid);

/// For how long the main thread was on a processor so far, or waited for one; 0 when not told.
std::uint64_t wanted_a_processor_ns(std::int32_t pid);

/// It is on a processor, or wants to be. False when not known.
bool runs(std::int32_t pid, std::int32_t tid);

/// Of this process, ascending; one of them may be that of the look itself.
std::vector<std::int32_t> open_descriptors();

/// An id for a job that no other job has: 32 hex digits.
std::string unique_id();

}  // namespace lockstep::os
