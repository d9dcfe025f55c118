#include "harness/model/worlds.h"

#include <algorithm>
#include <iterator>

#include "harness/history/rank_places.h"
#include "harness/model/claims.h"

namespace lockstep {
namespace {

/// Processes that were told to be ranks, never were in a group and ended well, beside worlds that
/// did form: what prepared for them, or came after.
bool is_no_world(const Run& run, const Party& party) {
  return !party.has_group() &&
         std::all_of(party.claims.begin(), party.claims.end(), [&](const Claim* claim) {
           return std::any_of(run.ends.begin(), run.ends.end(), [&](const ProcessEnd& end) {
             return end.pid == claim->pid && end.exit_status == 0;
           });
         });
}

/// What the events of one kind are about: a process of this world, of another one, or of none.
class Selection {
 public:
  Selection(const std::vector<Party>& parties, std::size_t number)
      : parties_(parties), number_(number) {}

  [[nodiscard]] bool is_last() const { return number_ + 1 == parties_.size(); }
  [[nodiscard]] bool is_of_this(std::int32_t pid) const { return parties_[number_].has(pid); }
  [[nodiscard]] bool is_of_any(std::int32_t pid) const {
    return std::any_of(parties_.begin(), parties_.end(),
                       [&](const Party& party) { return party.has(pid); });
  }
  /// Of a process of this world; or of none of them.
  [[nodiscard]] bool or_of_all(std::int32_t pid) const {
    return is_of_this(pid) || !is_of_any(pid);
  }
  /// Of a process of this world; or of none of them, and this is the last.
  [[nodiscard]] bool or_of_none(std::int32_t pid) const {
    return is_of_this(pid) || (is_last() && !is_of_any(pid));
  }
  /// It was there then.
  [[nodiscard]] bool lived(std::uint64_t at_ns) const {
    return is_last() ||
           (parties_[number_].from_ns() <= at_ns && at_ns <= parties_[number_].until_ns());
  }
  [[nodiscard]] bool is_history_of_this(const Process& process) const {
    return is_history_of(parties_[number_], process);
  }
  [[nodiscard]] bool is_claimed(const Process& process) const {
    return std::any_of(parties_.begin(), parties_.end(),
                       [&](const Party& party) { return is_history_of(party, process); });
  }

 private:
  static bool is_history_of(const Party& party, const Process& process) {
    return std::any_of(party.claims.begin(), party.claims.end(),
                       [&](const Claim* claim) { return claim->process == &process; });
  }

  const std::vector<Party>& parties_;
  std::size_t number_;
};

template <class Event, class Test>
void copy_if(const std::vector<Event>& from, std::vector<Event>& to, Test test) {
  std::copy_if(from.begin(), from.end(), std::back_inserter(to), test);
}

/// Histories of ranks, which are large and of one world each, go there.
void take_histories(Run& run, Run& part, const Selection& selection) {
  for (Process& process : run.processes) {
    if (selection.is_history_of_this(process))
      part.processes.push_back(std::move(process));
    else if (!selection.is_claimed(process) && selection.or_of_none(process.pid))
      part.processes.push_back(process);
  }
}

Run part_of(Run& run, const Party& party, const Selection& selection) {
  Run part;
  part.directory = run.directory;
  part.plan = run.plan;
  part.journal_complete = run.journal_complete;
  part.ended_ns = run.ended_ns;
  part.live = run.live;
  part.hosts = run.hosts;
  part.clock_error_ns = run.clock_error_ns;
  part.tensor = run.tensor;
  if (party.size > 0)
    part.plan.world_size = party.size;
  const auto or_of_all = [&](const auto& event) { return selection.or_of_all(event.pid); };
  const auto or_of_none = [&](const auto& event) { return selection.or_of_none(event.pid); };
  take_histories(run, part, selection);
  copy_if(run.starts, part.starts, or_of_all);
  copy_if(run.ends, part.ends, or_of_all);
  copy_if(run.raised, part.raised, or_of_all);
  copy_if(run.states, part.states, or_of_all);
  copy_if(run.stacks, part.stacks, or_of_all);
  copy_if(run.descriptors, part.descriptors, or_of_none);
  copy_if(run.unwaited, part.unwaited, or_of_none);
  copy_if(run.strangers, part.strangers, or_of_none);
  copy_if(run.launcher_ends, part.launcher_ends, [&](const LauncherEnd& end) {
    return std::any_of(end.pids.begin(), end.pids.end(),
                       [&](std::int32_t pid) { return selection.is_of_this(pid); });
  });
  copy_if(run.late_devices, part.late_devices, or_of_none);
  copy_if(run.unacknowledged, part.unacknowledged, or_of_none);
  part.silent_hosts = run.silent_hosts;
  copy_if(run.acted, part.acted, [&](const Acted& act) {
    return selection.is_of_this(act.pid) ||
           (!selection.is_of_any(act.pid) && selection.lived(act.at_ns));
  });
  if (selection.is_last()) {
    part.requests = run.requests;
    part.observations = run.observations;
    part.marks = run.marks;
    part.notes = run.notes;
    part.leftovers = run.leftovers;
    part.missing = run.missing;
  }
  return part;
}

World about(const Party& party) {
  World world{.run = {},
              .ranks = {},
              .from_ns = party.from_ns(),
              .until_ns = party.until_ns(),
              .started_by = party.claims.front()->parent,
              .task = party.claims.front()->task,
              .tasks = party.claims.front()->tasks};
  for (const Claim* const claim : party.claims) {
    world.ranks.insert(claim->rank);
    world.attempt = std::max(world.attempt, claim->attempt);
    if (claim->parent != world.started_by)
      world.started_by = 0;
    if (claim->task != world.task)
      world.task.reset();
  }
  return world;
}

}  // namespace

std::vector<World> worlds_of(Run run) {
  std::vector<World> worlds;
  const std::vector<Claim> claims = claims_of(run);
  std::vector<Party> parties = parties_of(claims);
  if (std::any_of(parties.begin(), parties.end(),
                  [](const Party& party) { return party.has_group(); }))
    std::erase_if(parties, [&](const Party& party) { return is_no_world(run, party); });
  for (const Party& party : parties)
    worlds.push_back(about(party));
  if (worlds.size() < 2) {
    worlds.resize(1);
    worlds.front().run = std::move(run);
  }
  for (std::size_t i = 0; worlds.size() > 1 && i < parties.size(); ++i)
    worlds[i].run = part_of(run, parties[i], Selection(parties, i));
  for (World& world : worlds)
    history::settle_places(world.run);
  return worlds;
}

std::vector<World> worlds_at_one_time(const Run& run) {
  const std::vector<Claim> claims = claims_of(run);
  const std::vector<Party> parties = parties_of(claims);
  for (const Party& a : parties) {
    for (const Party& b : parties) {
      if (&a != &b && a.has_group() && b.has_group() && a.from_ns() < b.until_ns() &&
          b.from_ns() < a.until_ns())
        return worlds_of(run);
    }
  }
  return {};
}

}  // namespace lockstep
