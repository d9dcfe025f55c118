#include "harness/exports/shown.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/history/op_traits.h"

namespace lockstep::exports {
namespace {

bool is_shown_by_calls(const Finding& finding) {
  switch (finding.code) {
    case Code::kLeftEarly:
    case Code::kRankDied:
      return true;
    case Code::kGroupDiffers:
    case Code::kTouchedInFlight:
    case Code::kUndefinedResult:
    case Code::kSlow:
      return false;
    default: {
      const Family family = family_of(finding.code);
      return family == Family::kMismatch || family == Family::kLoopExit || family == Family::kWait;
    }
  }
}

/// Somebody waits in a call: what is waited for elsewhere, no list of calls shows.
bool shows_a_wait(const Replay& replay) {
  return std::any_of(replay.ranks.begin(), replay.ranks.end(), [](const ReplayRank& rank) {
    return std::any_of(rank.calls.begin(), rank.calls.end(),
                       [](const ReplayCall& call) { return call.completed_ns == kNeverNs; });
  });
}

/// Of a rank that stands elsewhere a program can show that it sleeps, and no more.
bool sleeper_is_known(const Replay& replay, const Finding& finding) {
  const auto sleeps = [&](Rank rank) {
    return replay.ranks[static_cast<std::size_t>(rank.value)].end == RankEnd::kSleeps;
  };
  const bool any = std::any_of(finding.culprits.begin(), finding.culprits.end(), sleeps);
  switch (finding.code) {
    case Code::kStalledOutside:
      return any;
    case Code::kAbsentRank:
      return !finding.culprits.empty() && !any;
    case Code::kRankDied:
      return !any;  // It was ended by us before it could.
    default:
      return true;
  }
}

/// Who left out a call made the next one in its place. Of a round without calls, and of a call that
/// never came to the backend, no list of calls tells.
bool shows_the_call_left_out(const Replay& replay, const Finding& finding) {
  if (finding.code != Code::kMissingCall)
    return true;
  const auto of_group = [&](Rank rank, auto&& fits) {
    const std::vector<ReplayCall>& calls = replay.ranks[static_cast<std::size_t>(rank.value)].calls;
    return std::find_if(calls.begin(), calls.end(), [&](const ReplayCall& call) {
             return replay.groups[call.group].label == finding.group &&
                    !history::is_point_to_point(call.op) && fits(call);
           }) != calls.end();
  };
  const auto made_later = [&](const ReplayCall& instead) {
    for (std::size_t rank = 0; rank < replay.ranks.size(); ++rank) {
      const Rank other{static_cast<std::int32_t>(rank)};
      if (!finding.culprits.contains(other) && of_group(other, [&](const ReplayCall& call) {
            return call.seq > finding.seq && call.op == instead.op;
          }))
        return true;
    }
    return false;
  };
  return std::any_of(finding.culprits.begin(), finding.culprits.end(), [&](Rank rank) {
    return of_group(
        rank, [&](const ReplayCall& call) { return call.seq == finding.seq && made_later(call); });
  });
}

/// What the ranks called there differs, and no more once it is made again.
bool hides_the_difference(const Replay& replay, const Finding& finding) {
  const auto alike = [](const ReplayCall& a, const ReplayCall& b) {
    return a.op == b.op && a.dtype == b.dtype && a.reduce_op == b.reduce_op;
  };
  std::vector<const ReplayCall*> there;
  for (const ReplayRank& rank : replay.ranks) {
    for (const ReplayCall& call : rank.calls) {
      if (replay.groups[call.group].label == finding.group && call.seq == finding.seq &&
          !history::is_point_to_point(call.op))
        there.push_back(&call);
    }
  }
  return std::any_of(there.begin(), there.end(), [&](const ReplayCall* call) {
    return !alike(*call, *there.front()) &&
           alike(as_made_again(*call), as_made_again(*there.front()));
  });
}

/// Two calls from lines that are not known would be made from one, or from two: either may move the
/// blame.
bool all_lines_are_known(const Replay& replay) {
  return std::all_of(replay.ranks.begin(), replay.ranks.end(), [](const ReplayRank& rank) {
    return std::none_of(rank.calls.begin(), rank.calls.end(),
                        [](const ReplayCall& call) { return call.places.empty(); });
  });
}

}  // namespace

Error refused(const std::string& have, const std::string& need) {
  return {Error::Kind::kUsage,
          fmt::format("no program can show this again: have {}, need {}", have, need),
          "lockstep show RUN draws what is there"};
}

ReplayCall as_made_again(ReplayCall call) {
  using history::Op;
  using history::ReduceOp;
  switch (call.op) {
    case Op::kAllGatherCoalesced:
      call.op = Op::kAllGather;
      break;
    case Op::kReduceScatterCoalesced:
      call.op = Op::kReduceScatterSingle;
      break;
    case Op::kAllToAll:
      call.op = Op::kAllToAllSingle;
      break;
    default:
      break;
  }
  if (call.dtype >= history::DType::kOther)
    call.dtype = history::DType::kFloat32;
  const bool is_known = call.reduce_op <= ReduceOp::kBxor && call.reduce_op != ReduceOp::kAvg;
  if (!is_known)
    call.reduce_op = ReduceOp::kSum;
  return call;
}

std::optional<Error> no_calls_show(const Finding& finding) {
  if (is_shown_by_calls(finding))
    return std::nullopt;
  return refused(fmt::format("{} ({})", text_of(finding.code), row_of(finding.code).title),
                 "a mismatch of calls, or ranks that wait");
}

std::optional<Error> not_shown(const Replay& replay, const Finding& finding) {
  if (family_of(finding.code) != Family::kMismatch && !shows_a_wait(replay))
    return refused("a rank that waits outside all calls, as for the store",
                   "ranks that wait in a call");
  if (!sleeper_is_known(replay, finding))
    return refused(fmt::format("{}, and what kept the rank that did not come is no call",
                               text_of(finding.code)),
                   "ranks that all wait in calls, or one that is stalled by itself");
  if (!shows_the_call_left_out(replay, finding))
    return refused("a call that was left out, and none that was made in its place",
                   "a call in its place that the others made later");
  if (hides_the_difference(replay, finding))
    return refused(
        "calls that differ by what PyTorch's public functions over Gloo do not tell apart",
        "calls that differ otherwise");
  if (!all_lines_are_known(replay))
    return refused("calls without the line that made them", "the lines of all calls");
  return std::nullopt;
}

}  // namespace lockstep::exports
