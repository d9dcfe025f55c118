#include "harness/launch/tracked_processes.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "harness/base/clock.h"
#include "harness/history/journal.h"

namespace lockstep::launch {
namespace {

constexpr std::size_t kHeldMax = 128;  // Each takes a descriptor of ours.
constexpr std::size_t kFailedMax = 16;

/// Another one that has this one's rank, or is told so, was there when this one was found.
bool was_there_with(const Tracked& other, const Tracked& one) {
  return other.rank == one.rank && (other.lives() || other.ended_ns > one.found_ns);
}

/// They were told to meet others at two places: each is a rank of a job of its own.
bool meet_apart(const Tracked& one, const Tracked& other) {
  return !one.told.meets_at.empty() && !other.told.meets_at.empty() &&
         one.told.meets_at != other.told.meets_at;
}

/// One process started both, and told each a rank of one job.
bool started_alike(const Tracked& one, const Tracked& other) {
  return one.told.parent == other.told.parent && one.told.parent != ::getpid() && one.rank &&
         other.rank && !one.told.meets_at.empty() && one.told.meets_at == other.told.meets_at;
}

/// The same one.
bool told_alike(const Tracked& one, const Tracked& other) {
  return one.rank == other.rank && started_alike(one, other);
}

}  // namespace

Tracked& TrackedProcesses::add(Role role, std::optional<Rank> rank, os::ProcessHandle process,
                               bool only_told, std::int32_t world_size) {
  Tracked& tracked = processes_.emplace_back();
  tracked.role = role;
  tracked.rank = rank;
  tracked.process = std::move(process);
  tracked.only_told = only_told;
  tracked.is_command = role == Role::kOther;
  tracked.found_ns = now_ns();
  tracked.told = told_of(tracked.process.pid());
  if (world_size > 0)
    tracked.told.world_size = world_size;
  if (!only_told)
    write_down(tracked);
  return tracked;
}

// A record that cannot be written is seen as a gap by the reader.
void TrackedProcesses::write_down(Tracked& process) {
  process.only_told = false;
  if (journal_ == nullptr)
    return;
  (void)journal_->append(ProcessStart{.at_ns = process.found_ns,
                                      .role = process.role,
                                      .rank = process.rank,
                                      .pid = process.process.pid(),
                                      .parent = process.told.parent,
                                      .parent_name = process.told.parent_name,
                                      .command = process.told.command,
                                      .world_size = process.told.world_size,
                                      .meets_at = process.told.meets_at,
                                      .attempt = process.told.attempt,
                                      .task = process.told.task,
                                      .tasks = process.told.tasks});
  if (process.ended)
    record_end(process, journal_);
}

// Whose end the last look has seen is let go of: histories were read since.
void TrackedProcesses::hold(const std::vector<os::ProcessStat>& family,
                            const std::function<bool(std::int32_t pid)>& failed) {
  std::size_t kept = 0;
  for (auto at = held_.begin(); at != held_.end();) {
    Held& held = at->second;
    const bool had_ended = std::exchange(held.ended, held.process.ended());
    if (held.ended && !had_ended)
      held.failed = failed(at->first.pid);
    const bool is_kept = held.failed && ++kept <= kFailedMax;
    at = had_ended && !is_kept ? held_.erase(at) : std::next(at);
  }
  for (const os::ProcessStat& process : family) {
    if (held_.size() >= kHeldMax)
      return;
    if (held_.count(process.id) != 0 || find(process.id) != nullptr)
      continue;
    if (process.zombie() && !failed(process.id.pid))
      continue;
    if (std::optional<os::ProcessHandle> handle = os::ProcessHandle::open(process.id))
      held_[process.id] = {.process = std::move(*handle),
                           .stat = process,
                           .ended = process.zombie(),
                           .failed = process.zombie()};
  }
}

std::vector<os::ProcessStat> TrackedProcesses::failed() const {
  std::vector<os::ProcessStat> failed;
  for (const auto& [id, held] : held_) {
    if (held.failed)
      failed.push_back(held.stat);
  }
  return failed;
}

std::optional<os::ProcessHandle> TrackedProcesses::hold_of(const os::ProcessId& id) {
  const auto held = held_.find(id);
  if (held == held_.end())
    return os::ProcessHandle::open(id);
  os::ProcessHandle process = std::move(held->second.process);
  held_.erase(held);
  return process;
}

Tracked* TrackedProcesses::find(const os::ProcessId& id) {
  const auto at = std::find_if(processes_.begin(), processes_.end(),
                               [&](const Tracked& process) { return process.process.id() == id; });
  return at == processes_.end() ? nullptr : &*at;
}

bool TrackedProcesses::found(const os::ProcessId& id, Rank rank, bool only_told,
                             std::int32_t world_size) {
  if (Tracked* const process = find(id)) {
    const bool is_news = process->role == Role::kOther && !only_told;
    if (is_news) {  // It starts the others and is one of them.
      process->role = Role::kRank;
      process->rank = rank;
      process->found_ns = now_ns();
    }
    if (process->only_told && !only_told)
      process->rank = rank;  // As its group says: its environment speaks of its launcher.
    if (is_news || (process->only_told && !only_told))
      write_down(*process);
    return is_news;
  }
  std::optional<os::ProcessHandle> process = hold_of(id);
  if (!process)
    return false;
  add(Role::kRank, rank, std::move(*process), only_told, world_size);
  return true;
}

void TrackedProcesses::believe(Tracked& process) {
  if (process.only_told)
    write_down(process);
}

void TrackedProcesses::believe_who_failed_beside_a_rank() {
  for (Tracked& process : processes_) {
    const bool failed = !process.lives() && process.ended && process.ended->exit_status != 0;
    const bool beside_one =
        std::any_of(processes_.begin(), processes_.end(), [&](const auto& other) {
          return !other.only_told && other.rank != process.rank && started_alike(other, process);
        });
    if (process.only_told && failed && beside_one)
      write_down(process);
  }
}

bool TrackedProcesses::share_a_rank() const {
  const auto claims = [](const Tracked& one) { return one.lives() || one.failed_to_join; };
  for (auto one = processes_.begin(); one != processes_.end(); ++one) {
    const bool shared = std::any_of(std::next(one), processes_.end(), [&](const Tracked& other) {
      return told_alike(*one, other) && was_there_with(*one, other) && claims(other);
    });
    if (claims(*one) && shared)
      return true;
  }
  return false;
}

// What was adopted before anybody looked has no parent to tell it by: it is there beside its rank.
// (Beside one that failed to join stands whoever was given its number as well.)
void TrackedProcesses::forget_helpers(const Lineage& lineage) {
  const auto beside_its_rank = [&](const Tracked& helper) {
    return std::any_of(processes_.begin(), processes_.end(), [&](const Tracked& process) {
      return !process.only_told && !process.failed_to_join && was_there_with(process, helper) &&
             !meet_apart(process, helper);
    });
  };
  for (auto at = processes_.begin(); at != processes_.end();) {
    const bool helper =
        at->only_told && (lineage.descends_from_a_rank(at->process.pid()) || beside_its_rank(*at));
    at = helper ? processes_.erase(at) : std::next(at);
  }
}

// Of several that were there together the one that was there first: the others it started, one way
// or another. Unless somebody else has started both, and told each of them.
void TrackedProcesses::believe_the_rest(const std::set<std::int32_t>& in_group) {
  const auto started_before = [](const Tracked& one, const Tracked& other) {
    const os::ProcessId a = one.process.id(), b = other.process.id();
    return std::pair(a.start_ticks, a.pid) < std::pair(b.start_ticks, b.pid);
  };
  for (Tracked& process : processes_) {
    const bool is_helper =
        std::any_of(processes_.begin(), processes_.end(), [&](const Tracked& other) {
          const bool siblings =
              other.told.parent == process.told.parent && process.told.parent != ::getpid();
          return started_before(other, process) && was_there_with(other, process) && !siblings &&
                 !meet_apart(other, process);
        });
    if (process.only_told && (!is_helper || in_group.count(process.process.pid()) != 0))
      write_down(process);
  }
}

void TrackedProcesses::was_there(const Gone& gone) {
  if (journal_ == nullptr)
    return;
  const std::uint64_t at_ns = now_ns();
  ProcessStart start{.at_ns = at_ns, .role = Role::kRank, .rank = gone.rank, .pid = gone.pid};
  ProcessEnd end{.at_ns = at_ns, .role = Role::kRank, .rank = gone.rank, .pid = gone.pid};
  end.exit_status = gone.exit_status;
  (void)journal_->append(start);
  (void)journal_->append(end);
}

void TrackedProcesses::take_end(Tracked& process) {
  launch::take_end(process, process.only_told ? nullptr : journal_);
}

void TrackedProcesses::reap_inherited(const std::vector<os::ProcessStat>& family) {
  for (const os::ProcessStat& process : family) {
    if (!process.zombie() || process.parent != ::getpid())
      continue;
    if (const Tracked* const one = find(process.id); one != nullptr && !one->lives())
      os::reap_pid_if_ended(process.id.pid);
  }
}

bool TrackedProcesses::has(Rank rank) const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [&](const Tracked& process) { return process.rank == rank; });
}

std::optional<std::size_t> TrackedProcesses::error_stream_of(const Tracked& process) const {
  for (const Tracked& one : processes_) {
    if (one.error_stream && process.rank && one.rank == process.rank)
      return one.error_stream;
  }
  return std::nullopt;
}

const Tracked* TrackedProcesses::ended_rank(std::optional<std::int32_t> rank) const {
  const Tracked* found = nullptr;
  for (const Tracked& process : processes_) {
    const bool raised =
        process.ended && (process.ended->signal ? process.ended->signal == SIGABRT
                                                : process.ended->exit_status.value_or(1) == 1);
    if (rank && process.rank == Rank{*rank} && raised)
      found = &process;
  }
  return found;
}

bool TrackedProcesses::any_lives() const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [](const Tracked& process) { return process.lives(); });
}

bool TrackedProcesses::command_lives() const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [](const Tracked& process) { return process.is_command && process.lives(); });
}

std::vector<Watched> TrackedProcesses::known() const {
  std::vector<Watched> known;
  for (const Tracked& process : processes_)
    known.push_back(
        {.rank = process.only_told ? std::nullopt : process.rank, .id = process.process.id()});
  return known;
}

std::vector<Watched> TrackedProcesses::living(bool with_command) const {
  std::vector<Watched> living;
  for (const Tracked& process : processes_) {
    if (process.lives() && (with_command || process.role == Role::kRank))
      living.push_back({.rank = process.rank, .id = process.process.id()});
  }
  return living;
}

std::vector<JobProcess*> TrackedProcesses::all() {
  std::vector<JobProcess*> pointers;
  for (Tracked& process : processes_)
    pointers.push_back(&process);
  return pointers;
}

}  // namespace lockstep::launch
