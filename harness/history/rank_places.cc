#include "harness/history/rank_places.h"

#include <algorithm>
#include <vector>

namespace lockstep::history {

bool has_no_group(const Run& run, std::int32_t pid) {
  return std::none_of(run.processes.begin(), run.processes.end(), [&](const Process& process) {
    return process.pid == pid && !process.groups.empty();
  });
}

namespace {

// An end is on record when lockstep has seen it: on a busy machine, after what followed it.
constexpr std::uint64_t kSeenLateNs = 250'000'000;
// All ranks of a world come into their group within such a time; a side-car takes longer to start.
constexpr std::uint64_t kFormsNs = 2'000'000'000;

const ProcessEnd* end_of(const Run& run, std::int32_t pid, Rank rank) {
  const auto at = std::find_if(run.ends.begin(), run.ends.end(), [&](const ProcessEnd& end) {
    return end.pid == pid && end.rank == rank;
  });
  return at == run.ends.end() ? nullptr : &*at;
}

/// Known to have lived then, or to have lived until lockstep ended the job: nothing follows that.
bool lived(const Run& run, const Process& process, std::uint64_t at_ns) {
  if (const ProcessEnd* const end = end_of(run, process.pid, *process.rank))
    return (end->signal && end->our_signal) || end->at_ns > at_ns + kSeenLateNs;
  const bool worked = std::any_of(process.collectives.begin(), process.collectives.end(),
                                  [&](const Collective& c) { return c.issued_ns > at_ns; });
  return worked || (!process.closed &&
                    std::any_of(run.starts.begin(), run.starts.end(), [&](const ProcessStart& s) {
                      return s.pid == process.pid && s.rank == process.rank;
                    }));
}

/// Of two that are there together, `one` has no claim to the rank. Who was first has, but for a
/// world of its own alone.
bool is_beside(const Run& run, const Process& one, const Process& other) {
  if (other.rank != one.rank || other.pid == one.pid || other.groups.empty() ||
      other.boot_id != one.boot_id)
    return false;
  const bool first = other.opened_ns < one.opened_ns;
  const Process& before = first ? other : one;
  const Process& after = first ? one : other;
  if (after.parent_pid != before.pid && !lived(run, before, after.opened_ns))
    return false;
  const bool alone = one.world_size < 2, other_alone = other.world_size < 2;
  return alone != other_alone ? alone : first;
}

void put_beside(Process& process) {
  process.beside = process.rank;
  process.rank.reset();
}

/// Two worlds that formed at one time (two jobs of one command): who was first says nothing of who
/// belongs together, and nobody is a rank whose place is claimed twice.
void give_up_where_worlds_mix(const std::vector<Process*>& by_time) {
  std::uint64_t last_ns = 0;  // When the last rank came into its group.
  for (const Process* const process : by_time)
    last_ns = std::max(last_ns, process->rank ? process->opened_ns : 0);
  for (const Process* const other : by_time) {
    if (!other->beside || other->world_size < 2 || other->opened_ns > last_ns + kFormsNs)
      continue;
    for (Process* const process : by_time) {
      if (process->rank == other->beside && process->pid != other->parent_pid)
        put_beside(*process);
    }
  }
}

void settle_processes(Run& run) {
  for (Process& process : run.processes) {
    if (process.beside)
      process.rank = process.beside;
    process.beside.reset();
  }
  std::vector<Process*> by_time;
  for (Process& process : run.processes) {
    if (process.rank && !process.groups.empty())
      by_time.push_back(&process);
  }
  std::stable_sort(by_time.begin(), by_time.end(),
                   [](const Process* a, const Process* b) { return a->opened_ns < b->opened_ns; });
  for (Process* const process : by_time) {
    if (std::any_of(by_time.begin(), by_time.end(), [&](const Process* other) {
          return other->rank && is_beside(run, *process, *other);
        }))
      put_beside(*process);
  }
  give_up_where_worlds_mix(by_time);
}

/// The last process of this rank that came into a group from then on; null if there is none.
const Process* in_a_group(const Run& run, Rank rank, std::int32_t but_for, std::uint64_t from_ns) {
  const Process* last = nullptr;
  for (const Process& p : run.processes) {
    if (p.rank == rank && p.pid != but_for && !p.groups.empty() && p.opened_ns >= from_ns &&
        (last == nullptr || p.opened_ns > last->opened_ns))
      last = &p;
  }
  return last;
}

bool was_followed(const Run& run, const ProcessEnd& end) {
  return in_a_group(run, *end.rank, end.pid, end.at_ns - std::min(end.at_ns, kSeenLateNs)) !=
             nullptr ||
         std::any_of(run.starts.begin(), run.starts.end(), [&](const ProcessStart& start) {
           return start.role == Role::kRank && start.rank == end.rank && start.pid != end.pid &&
                  start.at_ns >= end.at_ns;
         });
}

/// The process that this one started as the rank; null if it is no wrapper.
const Process* wrapped_by(const Run& run, const ProcessStart& start) {
  if (!has_no_group(run, start.pid))
    return nullptr;
  const Process* const inner = in_a_group(run, *start.rank, start.pid, start.at_ns);
  const ProcessEnd* const end = end_of(run, start.pid, *start.rank);
  return inner != nullptr && (end == nullptr || end->at_ns >= inner->opened_ns) ? inner : nullptr;
}

bool is_beside(const Run& run, std::int32_t pid, Rank rank) {
  return std::any_of(run.processes.begin(), run.processes.end(), [&](const Process& process) {
    return process.pid == pid && process.beside == rank;
  });
}

void set_aside(Run& run, const ProcessEnd& end) {
  for (ProcessStart& start : run.starts) {
    if (start.pid == end.pid && start.rank == end.rank && start.at_ns <= end.at_ns)
      start.role = Role::kBeside;
  }
}

}  // namespace

void settle_places(Run& run) {
  settle_processes(run);
  const auto restore = [](auto& event) {
    if (event.role == Role::kBeside)
      event.role = Role::kRank;
  };
  std::for_each(run.starts.begin(), run.starts.end(), restore);
  std::for_each(run.ends.begin(), run.ends.end(), restore);
  for (ProcessEnd& end : run.ends) {
    if (end.role == Role::kRank && end.rank &&
        (is_beside(run, end.pid, *end.rank) || was_followed(run, end))) {
      end.role = Role::kBeside;
      set_aside(run, end);
    }
  }
  for (ProcessStart& start : run.starts) {
    if (start.role != Role::kRank || !start.rank)
      continue;
    const Process* const inner = wrapped_by(run, start);
    for (ProcessEnd& end : run.ends) {
      if (inner == nullptr || end.pid != start.pid || end.rank != start.rank)
        continue;
      // That of the process it started says more, unless only the wrapper failed.
      const ProcessEnd* const real = end_of(run, inner->pid, *start.rank);
      if (!end.failed() || (real != nullptr && real->failed()))
        end.role = Role::kBeside;
    }
    if (inner != nullptr || is_beside(run, start.pid, *start.rank))
      start.role = Role::kBeside;
  }
}

bool is_command(const Run& run, std::int32_t pid) {
  return std::any_of(run.starts.begin(), run.starts.end(), [&](const ProcessStart& start) {
    return start.role == Role::kOther && start.pid == pid;
  });
}

bool wrapper_lives(const Run& run, Rank rank, std::uint64_t at_ns) {
  return std::any_of(run.starts.begin(), run.starts.end(), [&](const ProcessStart& start) {
    const ProcessEnd* const end = end_of(run, start.pid, rank);
    return start.role == Role::kBeside && start.rank == rank && has_no_group(run, start.pid) &&
           (end == nullptr || end->at_ns > at_ns);
  });
}

}  // namespace lockstep::history
