#include "harness/model/group_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <tuple>

#include "harness/base/signal_name.h"
#include "harness/history/hosts.h"
#include "harness/history/rank_places.h"
#include "harness/history/recorded.h"
#include "harness/model/call_site.h"
#include "harness/model/coverage.h"
#include "harness/model/ending.h"
#include "harness/model/group_identity.h"

namespace lockstep {
namespace {

/// Of a dump only the last calls of each group are kept, and numbers are its own.
constexpr std::uint64_t kRecordedSpanMax = 1U << 14;

/// More than that between two calls of a group no writer can have made.
std::uint64_t span_max(const Process& process) {
  return is_recorded(process) ? kRecordedSpanMax : process.collectives.size() + process.dropped;
}

/// Records of a process are numbered: more missing than were given up means that one is lost.
bool records_have_gap(const Process& process) {
  if (is_recorded(process))
    return false;
  const std::vector<Collective>& all = process.collectives;
  if (process.dropped > 0)
    return !all.empty() && all.back().record + 1 > all.size() + process.dropped;
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (all[i].record > all[i - 1].record + 1)
      return true;
  }
  return false;
}

void add_records(std::vector<Member>& of_group, const Process& process, std::uint64_t cutoff_ns) {
  std::vector<std::uint64_t> late(process.groups.size(), 0);
  for (const Collective& call : process.collectives) {
    if (call.group >= of_group.size() || history::is_point_to_point(call.op))
      continue;
    Member& member = of_group[call.group];
    if (call.issued_ns > cutoff_ns) {
      ++late[call.group];
      continue;
    }
    if (member.slots.empty())
      member.first_seq = call.seq;
    if (call.seq < member.first_seq) {  // Kept apart while it was incomplete: in front of the ring.
      const std::uint64_t more = member.first_seq - call.seq;
      if (more > span_max(process))
        continue;
      member.slots.insert(member.slots.begin(), more, nullptr);
      member.first_seq = call.seq;
    }
    const std::uint64_t index = call.seq - member.first_seq;
    if (index >= member.slots.size()) {
      if (index > span_max(process)) {
        member.is_complete = false;  // A sequence number no writer can have reached.
        continue;
      }
      member.slots.resize(index + 1, nullptr);
    }
    member.slots[index] = &call;
  }
  for (std::size_t group = 0; group < of_group.size(); ++group) {
    Member& member = of_group[group];
    const std::uint64_t total = process.groups[group].issued;
    // A late record that is missing counts as early: more issued is the careful side.
    member.issued = std::max(total - std::min(total, late[group]), member.end_seq());
    if (is_recorded(process))
      continue;
    member.overwritten = member.first_seq > 0 && !member.slots.empty();
    const bool to_the_end = member.slots.empty() || member.end_seq() == member.issued;
    const bool hole = std::count(member.slots.begin(), member.slots.end(), nullptr) > 0;
    if (!to_the_end || (process.dropped == 0 && (hole || member.overwritten ||
                                                 (member.slots.empty() && member.issued > 0))))
      member.is_complete = false;
  }
}

std::vector<Member> members_of(const Process& process, std::uint64_t cutoff_ns) {
  const bool gap = records_have_gap(process);
  auto keys = std::make_shared<std::vector<std::uint64_t>>();
  for (std::uint32_t site = 0; site < process.sites.size(); ++site)
    keys->push_back(site_key(process, site));
  std::vector<Member> of_group(process.groups.size());
  for (std::uint32_t group = 0; group < of_group.size(); ++group) {
    of_group[group].rank = *process.rank;
    of_group[group].process = &process;
    of_group[group].group = group;
    of_group[group].site_keys = keys;
    of_group[group].is_complete = process.is_complete(group) && !gap;
  }
  add_records(of_group, process, cutoff_ns);
  return of_group;
}

bool contains(const std::vector<Rank>& ranks, Rank rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

bool lacks_a_member(const GroupView& view) {
  return view.size <= 0 || view.members.size() < static_cast<std::size_t>(view.size);
}

/// A group that lists no ranks is known by its members when all of them are there.
void fill_ranks(GroupView& view) {
  if (!view.ranks.empty() || lacks_a_member(view))
    return;
  std::vector<std::optional<Rank>> ranks(static_cast<std::size_t>(view.size));
  for (const Member& member : view.members) {
    const auto place = static_cast<std::size_t>(member.about().my_rank);
    if (member.about().my_rank < 0 || place >= ranks.size() || ranks[place])
      return;
    ranks[place] = member.rank;
  }
  for (const std::optional<Rank>& rank : ranks)
    view.ranks.push_back(*rank);
}

/// Two views of one name, each without some of its members, whose members list each other and
/// created them at the same place among the groups of that name: somebody created it differently.
/// (Whoever sits out a smaller world that the others form and leave has created fewer than they.)
void mark_disagreements(std::vector<GroupView>& views) {
  for (GroupView& a : views) {
    for (GroupView& b : views) {
      if (&a == &b || a.name != b.name || !lacks_a_member(a) || !lacks_a_member(b))
        continue;
      for (const Member& x : a.members) {
        for (const Member& y : b.members) {
          if (x.is_complete && y.is_complete && x.about().generation == y.about().generation &&
              contains(a.ranks, y.rank) && contains(b.ranks, x.rank))
            a.members_disagree = b.members_disagree = true;
        }
      }
    }
  }
}

bool is_whole(const Run& run, const std::vector<const Process*>& processes,
              const std::vector<GroupView>& views) {
  if (!journal_is_whole(run) || processes.size() != ranks_of(run).size())
    return false;
  return std::all_of(views.begin(), views.end(), [](const GroupView& view) {
    return std::all_of(view.members.begin(), view.members.end(),
                       [](const Member& m) { return m.is_complete; });
  });
}

/// Processes that were never there together are not partners (a restart reuses ranks and names).
bool ended_before(const Run& run, const Process& process, std::uint64_t ns) {
  return std::any_of(run.ends.begin(), run.ends.end(), [&](const ProcessEnd& end) {
    return end.pid == process.pid && end.rank == process.rank && process.pid != 0 &&
           end.at_ns > process.opened_ns && end.at_ns < ns;
  });
}

/// It waited for nobody when it ended, and nothing had failed: it did not end because of the
/// others.
bool was_between_calls(const Run& run, Rank rank) {
  const Process* const process = current_process(run, rank);
  return process != nullptr && !process->damaged && !records_have_gap(*process) &&
         std::all_of(process->collectives.begin(), process->collectives.end(),
                     [](const Collective& call) { return call.completed_ns && !call.failed; }) &&
         std::none_of(run.raised.begin(), run.raised.end(),
                      [&](const Raised& raised) { return raised.rank == rank; });
}

/// When it had failed, at the latest: its end is seen some time after it was seen in abort(), or
/// wrote its closing record, and had its status by then.
std::uint64_t failed_ns(const Run& run, const ProcessEnd& end) {
  constexpr std::uint64_t kMomentNs = 10'000'000;  // Ends of one moment are told in any order.
  std::uint64_t at_ns = end.at_ns - kMomentNs;
  if (end.signal == SIGABRT) {
    const StackSample abort = abort_of(run, end.pid);
    return abort.frames.empty() ? at_ns : std::min(at_ns, abort.at_ns);
  }
  for (const Process& process : run.processes) {
    if (process.pid == end.pid && process.rank == end.rank && end.exit_status && process.closed_ns)
      at_ns = std::min(at_ns, process.closed_ns);
  }
  return at_ns;
}

/// When one of the job first asked a rank to end, as its end shows.
std::optional<std::uint64_t> first_asked_ns(const Run& run) {
  std::optional<std::uint64_t> first;
  for (const ProcessEnd& end : run.ends) {
    if (end.role == Role::kRank && ending_of(run, end).as_asked && !end.our_signal)
      first = std::min(first.value_or(kNeverNs), end.asked_ns);
  }
  return first;
}

}  // namespace

bool GroupView::fully_seen() const {
  return size > 0 && members.size() == static_cast<std::size_t>(size) && !members_disagree &&
         std::all_of(members.begin(), members.end(), [](const Member& m) { return m.is_complete; });
}

const Member* GroupView::member(Rank rank) const {
  for (const Member& m : members) {
    if (m.rank == rank)
      return &m;
  }
  return nullptr;
}

std::optional<Rank> GroupView::global_rank(std::int32_t group_rank) const {
  if (group_rank < 0)
    return std::nullopt;
  if (static_cast<std::size_t>(group_rank) < ranks.size())
    return ranks[static_cast<std::size_t>(group_rank)];
  for (const Member& m : members) {
    if (m.about().my_rank == group_rank)
      return m.rank;
  }
  return std::nullopt;
}

std::string GroupView::label() const {
  const std::string& shown = name.empty() ? std::string("world") : name;
  return generation == 0 ? shown : fmt::format("{} (creation {})", shown, generation + 1);
}

std::optional<CallRef> GroupView::place(const Collective& call) const {
  return history::is_point_to_point(call.op) ? std::nullopt : std::optional(place(call.seq));
}

std::optional<CallRef> place_of(const Process& process, const Collective& call) {
  if (call.group >= process.groups.size() || history::is_point_to_point(call.op))
    return std::nullopt;
  const std::string& name = process.groups[call.group].name;
  const auto namesakes = std::count_if(process.groups.begin(), process.groups.end(),
                                       [&](const Group& group) { return group.name == name; });
  return namesakes == 1 ? std::optional(CallRef{name, call.seq}) : std::nullopt;
}

std::string GroupView::label(const Collective& call) const {
  std::string text = fmt::format("{} {}#{}", history::name_of(call.op), label(), call.seq);
  if (!history::is_point_to_point(call.op))
    return text;
  const auto peer = global_rank(call.root);
  text += call.op == history::Op::kSend ? " to " : " from ";
  text += peer ? fmt::format("rank {}", peer->value) : "any rank";
  if (call.tag > 0)
    text += fmt::format(", tag {}", call.tag);
  return text;
}

const Process* current_process(const Run& run, Rank rank) {
  const Process* best = nullptr;
  for (const Process& process : run.processes) {
    if (process.rank != rank)
      continue;
    const auto key = [](const Process& p) { return std::tuple(!p.groups.empty(), p.opened_ns); };
    if (best == nullptr || key(process) > key(*best))
      best = &process;
  }
  return best;
}

std::int32_t pid_of(const Run& run, Rank rank) {
  std::int32_t pid = 0;
  for (const ProcessStart& start : run.starts) {
    if (start.role == Role::kRank && start.rank == rank)
      pid = start.pid;
  }
  return pid;
}

bool has_ended(const Run& run, std::int32_t pid, std::uint64_t before_ns) {
  return std::any_of(run.ends.begin(), run.ends.end(), [&](const ProcessEnd& end) {
    return end.pid == pid && end.at_ns < before_ns;
  });
}

RankSet ranks_of(const Run& run) {
  RankSet ranks = RankSet::all(run.plan.world_size);
  for (const Process& process : run.processes) {
    if (process.rank)
      ranks.insert(*process.rank);
  }
  for (const ProcessStart& start : run.starts) {
    if (start.role == Role::kRank && start.rank)
      ranks.insert(*start.rank);
  }
  return ranks;
}

std::vector<GroupView> group_views(const Run& run, std::uint64_t cutoff_ns) {
  std::vector<const Process*> processes;
  std::uint64_t last_opened = 0;
  for (const Rank rank : ranks_of(run)) {
    const Process* process = current_process(run, rank);
    if (process == nullptr || process->groups.empty())
      continue;
    processes.push_back(process);
    last_opened = std::max(last_opened, process->opened_ns);
  }
  const std::set<GroupIdentity> unplaced = unplaced_groups(processes);
  std::vector<GroupView> views;
  std::map<std::pair<GroupIdentity, std::uint32_t>, std::size_t> index;
  for (const Process* process : processes) {
    if (ended_before(run, *process, last_opened))
      continue;
    std::map<GroupIdentity, std::uint32_t> created;
    for (Member& member : members_of(*process, cutoff_ns)) {
      const Group& group = member.about();
      if (group.inside)
        continue;
      const GroupIdentity identity = identity_of(group);
      const std::uint32_t generation = created[identity]++;
      const bool alone = group.named_by_store && unplaced.contains(identity);
      const auto [place, is_new] = index.try_emplace({identity, generation}, views.size());
      if (is_new || alone) {
        place->second = views.size();
        views.emplace_back();
        views.back().name = group.name;
        views.back().generation = generation;
        views.back().size = group.size;
        views.back().ranks = group.ranks;
        views.back().unplaced = alone;
      }
      member.is_complete = member.is_complete && !(alone && group.size > 1);
      views[place->second].members.push_back(std::move(member));
    }
  }
  for (GroupView& view : views)
    fill_ranks(view);
  mark_disagreements(views);
  const bool whole = is_whole(run, processes, views);
  for (GroupView& view : views)
    view.run_is_whole = is_of_dumps(run) ? !view.members_disagree : whole;
  return views;
}

bool was_left_out(const Run& run, const ProcessEnd& end) {
  constexpr std::uint64_t kSeenLateNs = 1'000'000'000;
  const std::optional<std::uint64_t> asked_ns = first_asked_ns(run);
  return asked_ns && end.role == Role::kRank && end.rank && !ending_of(run, end).as_asked &&
         end.failed() && !end.our_signal && end.signal != SIGTERM && end.signal != SIGABRT &&
         end.signal != SIGPIPE && end.at_ns < *asked_ns + kSeenLateNs &&
         was_between_calls(run, *end.rank) && journal_is_whole(run);
}

const LauncherEnd* launcher_killed(const Run& run) {
  const auto first =
      std::min_element(run.launcher_ends.begin(), run.launcher_ends.end(),
                       [](const auto& a, const auto& b) { return a.at_ns < b.at_ns; });
  return first == run.launcher_ends.end() ? nullptr : &*first;
}

std::string in_words(const LauncherEnd& end) {
  return fmt::format("{} ({}) was killed by {}", end.name, history::words_of_pid(end.pid),
                     signal_name(end.signal));
}

std::optional<std::uint64_t> ended_from_outside_ns(const Run& run) {
  std::optional<std::uint64_t> first = first_asked_ns(run);
  const LauncherEnd* const killed = launcher_killed(run);
  if (killed != nullptr && killed->at_ns < first.value_or(kNeverNs))
    first = killed->at_ns;
  const auto before = [&](std::uint64_t at_ns) { return first && at_ns < *first; };
  const bool by_themselves =
      std::any_of(run.raised.begin(), run.raised.end(),
                  [&](const Raised& raised) { return raised.rank && before(raised.at_ns); }) ||
      std::any_of(run.ends.begin(), run.ends.end(), [&](const ProcessEnd& end) {
        const bool ended_well =
            killed == nullptr && history::is_command(run, end.pid) && end.exit_status == 0;
        const bool failed_before = end.role == Role::kRank && !ending_of(run, end).as_asked &&
                                   end.exit_status != 0 && before(failed_ns(run, end));
        return ended_well || failed_before || was_left_out(run, end);
      });
  return by_themselves ? std::nullopt : first;
}

bool was(const Run& run, std::string_view acted) {
  return std::any_of(run.acted.begin(), run.acted.end(),
                     [&](const Acted& act) { return act.action == acted; });
}

std::uint64_t first_act_ns(const Run& run) {
  std::uint64_t first = ended_from_outside_ns(run).value_or(kNeverNs);
  for (const Acted& act : run.acted) {
    const bool to_a_rank = act.rank.has_value() && (act.action == "TERM" || act.action == "KILL");
    if (to_a_rank || act.action == "deadline" || act.action == "interrupted" ||
        act.action == "deadlock")
      first = std::min(first, act.at_ns);
  }
  return first;
}

}  // namespace lockstep
