#include "harness/history/host_numbers.h"

#include <algorithm>
#include <type_traits>

#include "harness/history/hosts.h"
#include "harness/history/watched_values.h"

namespace lockstep::history {
namespace {

template <class Records, class Take>
void each_at(Records& records, const Take& take) {
  for (auto& record : records)
    take(record.at_ns);
}

template <class Take>
void each_time(OptionalTime& time, const Take& take) {
  if (!time)
    return;
  std::uint64_t value = *time;
  take(value);
  time = value;
}

template <class Take>
void each_time(Process& process, const Take& take) {
  take(process.opened_ns);
  take(process.closed_ns);
  each_at(process.creations, take);
  each_at(process.set_aside, take);
  each_at(process.begun, take);
  for (Collective& collective : process.collectives) {
    take(collective.issued_ns);
    each_time(collective.returned_ns, take);
    each_time(collective.completed_ns, take);
  }
  if (process.watched == nullptr)
    return;
  WatchedValues& watched = *process.watched;
  each_at(watched.points, take);
  each_at(watched.non_finite, take);
  each_at(watched.handed_in, take);
  each_at(watched.misuses, take);
  each_at(watched.epochs, take);
  for (std::uint64_t* const time : {&watched.first_ns, &watched.steady_since_ns,
                                    &watched.steady_until_ns, &watched.last_step_ns})
    take(*time);
}

template <class Take>
void each_time(Run& run, const Take& take) {
  take(run.plan.begun_ns);
  take(run.ended_ns);
  for (Process& process : run.processes)
    each_time(process, take);
  each_at(run.starts, take);
  each_at(run.ends, take);
  for (ProcessEnd& end : run.ends)
    take(end.asked_ns);
  each_at(run.acted, take);
  each_at(run.states, take);
  for (StateSample& sample : run.states) {
    for (ThreadState& thread : sample.threads) {
      if (thread.until_ns)
        take(*thread.until_ns);
    }
  }
  each_at(run.stacks, take);
  for (StackSample& sample : run.stacks)
    take(sample.started_ns);
  each_at(run.raised, take);
  each_at(run.marks, take);
  each_at(run.notes, take);
  each_at(run.leftovers, take);
  for (Leftover& left : run.leftovers) {
    for (Ancestor& above : left.lineage)
      take(above.started_ns);
  }
  each_at(run.unwaited, take);
  for (Unwaited& unwaited : run.unwaited)
    take(unwaited.since_ns);
  each_at(run.launcher_ends, take);
  each_at(run.strangers, take);
  each_at(run.silent_hosts, take);
  for (HostSilent& silent : run.silent_hosts)
    take(silent.since_ns);
  each_at(run.unacknowledged, take);
  each_at(run.late_devices, take);
  each_at(run.descriptors, take);
}

template <class Records, class Take>
void each_of_pid(Records& records, const Take& take) {
  for (auto& record : records)
    take(record.pid);
}

/// Those of threads, too.
template <class Take>
void each_pid(Run& run, const Take& take) {
  for (Process& process : run.processes) {
    take(process.pid);
    take(process.parent_pid);
    for (Collective& collective : process.collectives)
      take(collective.thread);
  }
  each_of_pid(run.starts, take);
  for (ProcessStart& start : run.starts)
    take(start.parent);
  each_of_pid(run.ends, take);
  for (ProcessEnd& end : run.ends) {
    if (end.sender)
      take(end.sender->pid);
  }
  each_of_pid(run.acted, take);
  each_of_pid(run.states, take);
  for (StateSample& sample : run.states) {
    for (ThreadState& thread : sample.threads)
      take(thread.tid);
    each_of_pid(sample.children, take);
    if (sample.waits_for_child)
      take(*sample.waits_for_child);
  }
  each_of_pid(run.stacks, take);
  for (StackSample& sample : run.stacks)
    take(sample.tid);
  each_of_pid(run.raised, take);
  each_of_pid(run.leftovers, take);
  for (Leftover& left : run.leftovers) {
    take(left.parent);
    each_of_pid(left.lineage, take);
  }
  each_of_pid(run.unwaited, take);
  for (Unwaited& unwaited : run.unwaited) {
    take(unwaited.parent);
    if (unwaited.parent_waits_for)
      take(*unwaited.parent_waits_for);
  }
  each_of_pid(run.launcher_ends, take);
  for (LauncherEnd& end : run.launcher_ends) {
    for (std::int32_t& pid : end.pids)
      take(pid);
  }
  each_of_pid(run.strangers, take);
  each_of_pid(run.unacknowledged, take);
  for (Stranger& stranger : run.strangers)
    take(stranger.other);
  each_of_pid(run.late_devices, take);
  each_of_pid(run.descriptors, take);
}

}  // namespace

void shift_times(Run& run, std::int64_t shift) {
  each_time(run, [&](std::uint64_t& time) {
    if (time != 0)
      time = static_cast<std::uint64_t>(
          std::max<std::int64_t>(1, static_cast<std::int64_t>(time) + shift));
  });
}

void number_pids(Run& run, std::size_t host) {
  const auto high = static_cast<std::int32_t>(host) << kPidBits;
  each_pid(run, [&](auto& pid) {
    if (static_cast<std::int32_t>(pid) > 0)
      pid = static_cast<std::remove_reference_t<decltype(pid)>>(static_cast<std::int32_t>(pid) |
                                                                high);
  });
}

}  // namespace lockstep::history
