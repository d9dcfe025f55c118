#include "harness/exports/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "harness/exports/replay_cut.h"
#include "harness/exports/shown.h"
#include "harness/history/op_traits.h"
#include "harness/history/recorded.h"
#include "harness/model/call_site.h"
#include "harness/model/ending.h"
#include "harness/model/source_loops.h"

namespace lockstep::exports {
namespace {

using history::Op;

constexpr std::uint64_t kSizesKept = 16;

std::vector<Place> places_of(const Process& process, const Collective& call) {
  std::vector<Place> places;
  if (call.site >= process.sites.size())
    return places;
  const std::vector<Frame>& frames = process.sites[call.site].frames;
  for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
    if (frame->line > 0 && is_user_frame(*frame))
      places.push_back({frame->file.empty() ? frame->module : frame->file, frame->function,
                        frame->line, frame->loops});
  }
  return places;
}

/// As torch.distributed was asked for it: by send(), not by isend().
bool blocks(const Process& process, const Collective& call) {
  if (!history::is_point_to_point(call.op))
    return !call.async;
  if (call.site >= process.sites.size())
    return true;
  const std::vector<Frame>& frames = process.sites[call.site].frames;
  return std::none_of(frames.begin(), frames.end(), [](const Frame& frame) {
    return frame.function == "isend" || frame.function == "irecv" ||
           frame.function == "batch_isend_irecv";
  });
}

/// Elements of one tensor that is handed in, and of one of the result.
std::optional<std::pair<std::uint64_t, std::uint64_t>> sizes_of(const Collective& call,
                                                                std::uint64_t members) {
  const auto share = [&](std::uint64_t whole) { return whole / members; };
  switch (call.op) {
    case Op::kAllGather:
    case Op::kAllGatherSingle:
    case Op::kAllGatherCoalesced:
    case Op::kGather:
      return std::pair{call.numel_in, share(call.numel_out)};
    case Op::kReduceScatter:
    case Op::kReduceScatterSingle:
    case Op::kReduceScatterCoalesced:
    case Op::kScatter:
      return std::pair{share(call.numel_in), call.numel_out};
    case Op::kAllToAll:
    case Op::kAllToAllSingle:
      if (call.numel_in != call.numel_out || call.numel_in % members != 0)
        return std::nullopt;
      return std::pair{share(call.numel_in), share(call.numel_out)};
    case Op::kRecv:
    case Op::kRecvAny:
      return std::pair{std::uint64_t{0}, call.numel_out};
    default:
      return std::pair{call.numel_in, std::uint64_t{0}};
  }
}

/// An end of the run's own making, or what the rank did when it was ended.
void add_end(const Job& job, Rank rank, const Process& process, const Finding& finding,
             ReplayRank& out) {
  const bool all_done = std::all_of(out.calls.begin(), out.calls.end(), [](const ReplayCall& call) {
    return call.completed_ns != kNeverNs || history::is_point_to_point(call.op);
  });
  const bool is_culprit = finding.culprits.contains(rank);
  for (const ProcessEnd& end : job.run().ends) {
    if (end.pid != process.pid || end.rank != rank || end.at_ns > job.first_act_ns() ||
        ending_of(job.run(), end).by_us)
      continue;
    out.end = all_done || end.failed() ? RankEnd::kWaits : RankEnd::kLeaves;
    if (!end.failed() || !is_culprit || (finding.code != Code::kRankDied && !all_done))
      return;  // Who failed because of what was called fails again.
    out.end = end.signal ? RankEnd::kKilled : RankEnd::kExits;
    out.status = end.signal ? *end.signal : end.exit_status.value_or(1);
    for (const Raised& raised : job.run().raised) {
      if (raised.rank == rank && !end.signal) {
        out.end = RankEnd::kRaises;
        out.text = raised.text;
      }
    }
    return;
  }
  if (is_culprit && all_done)
    out.end = RankEnd::kSleeps;
}

/// What was there before a call is waited for before it.
void add_waits(ReplayRank& rank) {
  std::set<std::size_t> open;
  for (std::size_t i = 0; i < rank.calls.size(); ++i) {
    ReplayCall& call = rank.calls[i];
    for (const std::size_t earlier : std::set(open)) {
      if (rank.calls[earlier].completed_ns < call.issued_ns) {
        call.waits.push_back(earlier);
        open.erase(earlier);
      }
    }
    if (call.later)
      open.insert(i);
  }
}

/// Small ones stay, and unequal ones stay unequal.
void shrink(Replay& replay) {
  std::set<std::uint64_t> large;
  const auto each = [&](auto&& use) {
    for (ReplayRank& rank : replay.ranks) {
      for (ReplayCall& call : rank.calls) {
        use(call.given);
        use(call.received);
      }
    }
  };
  each([&](std::uint64_t& size) {
    if (size > kSizesKept)
      large.insert(size);
  });
  each([&](std::uint64_t& size) {
    if (size > kSizesKept)
      size = kSizesKept + 1 +
             static_cast<std::uint64_t>(std::distance(large.begin(), large.find(size)));
  });
  std::string told;
  std::uint64_t small = kSizesKept;
  for (const std::uint64_t size : large) {
    ++small;
    if (small <= kSizesKept + 4)
      told += fmt::format("{}{} elements stand for {}", told.empty() ? "" : ", ", small, size);
  }
  if (!told.empty())
    replay.notes.push_back(told + (large.size() > 4 ? ", and so on." : "."));
}

void simplify(Replay& replay) {
  bool any = false;
  for (ReplayRank& rank : replay.ranks) {
    for (ReplayCall& call : rank.calls) {
      const ReplayCall before = std::exchange(call, as_made_again(call));
      any |= call.op != before.op || call.reduce_op != before.reduce_op;
    }
  }
  if (any)
    replay.notes.emplace_back(
        "Operations that Gloo lacks are there as others: coalesced ones as plain ones, AVG as "
        "SUM.");
}

/// Functions that all calls are made from, at one line, lead to no other place.
void leave_out_common_places(Replay& replay) {
  const auto common = [&] {
    const Place* first = nullptr;
    for (const ReplayRank& rank : replay.ranks) {
      for (const ReplayCall& call : rank.calls) {
        if (call.places.size() < 2 || !call.places.front().loops.empty())
          return false;
        const Place& place = call.places.front();
        first = first == nullptr ? &place : first;
        if (place.file != first->file || place.function != first->function ||
            place.line != first->line)
          return false;
      }
    }
    return first != nullptr;
  };
  while (common()) {
    for (ReplayRank& rank : replay.ranks) {
      for (ReplayCall& call : rank.calls)
        call.places.erase(call.places.begin());
    }
  }
}

Result<std::vector<ReplayGroup>> groups_of(const Job& job, std::size_t world) {
  std::vector<ReplayGroup> groups;
  bool has_world = false;
  for (const GroupView& view : job.groups()) {
    ReplayGroup group{.label = view.label(), .ranks = view.ranks};
    const bool has_calls =
        std::any_of(view.members.begin(), view.members.end(), [](const Member& member) {
          return !member.slots.empty() || member.about().p2p_issued > 0;
        });
    const auto size = static_cast<std::size_t>(std::max(view.size, 0));
    if (has_calls && size > 1 &&
        (view.members.size() != size || view.ranks.size() != size || view.unplaced))
      return refused(fmt::format("the calls of {} of {} members of group {}", view.members.size(),
                                 size, group.label),
                     "those of all members");
    bool whole = group.ranks.size() == world;
    for (std::size_t i = 0; whole && i < world; ++i)
      whole = group.ranks[i].value == static_cast<std::int32_t>(i);
    group.is_world = whole && !has_world;
    has_world = has_world || group.is_world;
    groups.push_back(std::move(group));
  }
  return groups;
}

using Views = std::map<std::pair<const Process*, std::uint32_t>, std::size_t>;

class Reader {
 public:
  Reader(const Job& job, const Finding& finding, const Cut& cut)
      : job_(job), finding_(finding), cut_(cut) {
    for (std::size_t i = 0; i < job.groups().size(); ++i) {
      for (const Member& member : job.groups()[i].members)
        views_[{member.process, member.group}] = i;
    }
  }

  Result<ReplayRank> rank(Rank rank) const {
    const Process* const process = current_process(job_.run(), rank);
    if (process == nullptr || process->groups.empty())
      return refused(fmt::format("no calls of rank {}", rank.value), "a history of every rank");
    ReplayRank out;
    std::set<std::int32_t> threads;
    for (const Collective& call : process->collectives) {
      const auto view = views_.find({process, call.group});
      if (view == views_.end() || job_.groups()[view->second].size < 2 ||
          call.issued_ns >= job_.first_act_ns() || cut_.drops(view->second, rank, call))
        continue;
      threads.insert(issuer_of(*process, call));
      Result<ReplayCall> one = replayed(*process, call, view->second);
      if (!one)
        return one.error();
      out.calls.push_back(std::move(*one));
    }
    if (threads.size() > 1)
      return refused(fmt::format("calls of {} threads of rank {}", threads.size(), rank.value),
                     "calls of one thread: how two threads come to cross is up to the scheduler");
    std::stable_sort(out.calls.begin(), out.calls.end(),
                     [](const auto& a, const auto& b) { return a.issued_ns < b.issued_ns; });
    add_end(job_, rank, *process, finding_, out);
    add_waits(out);
    return out;
  }

 private:
  Result<ReplayCall> replayed(const Process& process, const Collective& call,
                              std::size_t view) const {
    if (call.op == Op::kUnknown || call.op >= Op::kCount)
      return refused(
          fmt::format("a call of rank {} that lockstep has no name for", process.rank->value),
          "calls of torch.distributed that it knows");
    const auto sizes = sizes_of(call, static_cast<std::uint64_t>(job_.groups()[view].size));
    if (!sizes)
      return refused("an all_to_all with splits of unequal size", "the size of each split");
    const bool done = call.completed_ns && !call.failed && *call.completed_ns < job_.first_act_ns();
    return ReplayCall{.places = places_of(process, call),
                      .op = call.op,
                      .dtype = call.dtype,
                      .reduce_op = call.reduce_op,
                      .group = view,
                      .seq = call.seq,
                      .peer = call.root,
                      .tag = call.tag,
                      .later = !blocks(process, call),
                      .given = sizes->first,
                      .received = sizes->second,
                      .issued_ns = call.issued_ns,
                      .completed_ns = done ? *call.completed_ns : kNeverNs};
  }

  const Job& job_;
  const Finding& finding_;
  const Cut& cut_;
  Views views_{};
};

/// A round of an outer loop shows by a call outside the inner one. Where a rank made none, its
/// calls in two rounds look like those of one that is longer.
std::optional<Error> rounds_do_not_show(const Job& job) {
  std::map<Loop, std::map<std::int64_t, bool>> rounds;  // Whether who is there repeated its call.
  for (const GroupView& group : job.groups()) {
    for (const Member& member : group.members) {
      const auto& calls = member.process->collectives;
      if (calls.size() < 2 || calls.back().group != member.group)
        continue;
      const Collective& last = calls.back();
      const Collective& before = calls[calls.size() - 2];
      const bool repeated = before.group == member.group && member.site_key(last) != 0 &&
                            member.site_key(last) == member.site_key(before);
      const auto around = came_round(frames_of(member, last), frames_of(member, last));
      for (const auto& [frame, loop] : around) {
        const bool is_outer = loop != around.back().second;
        if (const auto round = round_at(job.run(), member, last, *frame, *loop))
          rounds[loop_of(*frame, *loop)][*round] |= repeated && is_outer;
      }
    }
  }
  for (const auto& [loop, ranks] : rounds) {
    if (ranks.size() > 1 && ranks.rbegin()->second)
      return refused(
          fmt::format("ranks in rounds {} and {} of the loop at line {}, in which one of "
                      "them made no call of its own",
                      ranks.begin()->first, ranks.rbegin()->first, std::get<2>(loop)),
          "calls by which rounds show");
  }
  return std::nullopt;
}

}  // namespace

Result<Replay> replay_of(const Job& job, const Finding& finding) {
  if (auto why = no_calls_show(finding))
    return *why;
  if (is_of_dumps(job.run()))
    return refused("dumps, which hold the last calls of each rank only",
                   "a history from the beginning");
  const RankSet all = ranks_of(job.run());
  const auto world = static_cast<std::size_t>(all.size());
  if (all != RankSet::all(static_cast<std::int32_t>(world)) || world < 2)
    return refused(fmt::format("the ranks {}", all.to_string()), "all ranks from 0, at least two");
  Replay replay;
  auto groups = groups_of(job, world);
  if (!groups)
    return groups.error();
  replay.groups = std::move(*groups);
  const Cut cut(job);
  const Reader reader(job, finding, cut);
  std::size_t calls = 0;
  for (const Rank rank : all) {
    auto one = reader.rank(rank);
    if (!one)
      return one.error();
    calls += one->calls.size();
    replay.ranks.push_back(std::move(*one));
  }
  if (calls == 0)
    return refused("a run without collectives", "calls that do not match, or that wait");
  if (auto why = rounds_do_not_show(job))
    return *why;
  if (auto why = not_shown(replay, finding))
    return *why;
  replay.notes = cut.notes();
  simplify(replay);
  shrink(replay);
  leave_out_common_places(replay);
  return replay;
}

}  // namespace lockstep::exports
