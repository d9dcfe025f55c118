// What the ranks of a run called, as a program can call it again: cut to what one finding needs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/base/error.h"
#include "harness/history/vocabulary.h"
#include "harness/model/job.h"
#include "harness/verdict/verdict.h"

namespace lockstep::exports {

/// A line of a function of the user's, on the way to a call.
struct Place {
  std::string file{}, function{};
  std::int32_t line{};
  std::vector<SourceLoop> loops{};  ///< Around it in that function, outermost first.
};

struct ReplayCall {
  std::vector<Place> places{};  ///< Outermost first.
  history::Op op{};
  history::DType dtype{};
  history::ReduceOp reduce_op{};
  std::size_t group{};    ///< Index into Replay::groups.
  std::uint64_t seq{};    ///< As in the history.
  std::int32_t peer{-1};  ///< Rank in the group of the root, or of the other end.
  std::int32_t tag{};
  bool later{};              ///< The call comes back before its result is there.
  std::uint64_t given{};     ///< Elements of a tensor that is handed in.
  std::uint64_t received{};  ///< Of one of the result.
  std::uint64_t issued_ns{};
  std::uint64_t completed_ns{};      ///< kNeverNs: it was not.
  std::vector<std::size_t> waits{};  ///< Earlier calls of the rank whose result is awaited before.
};

enum class RankEnd : std::uint8_t {
  kWaits,   ///< For all that it called, then it ends.
  kLeaves,  ///< What it called unfinished.
  kRaises,
  kExits,
  kKilled,
  kSleeps,  ///< It is somewhere else, and never comes.
};

struct ReplayRank {
  std::vector<ReplayCall> calls{};
  RankEnd end{};
  std::int32_t status{};  ///< Of its exit; or the signal.
  std::string text{};     ///< Of what it raised.
};

struct ReplayGroup {
  std::string label{};
  std::vector<Rank> ranks{};
  bool is_world{};  ///< The one that init_process_group makes.
};

struct Replay {
  std::vector<ReplayGroup> groups{};
  std::vector<ReplayRank> ranks{};   ///< By rank.
  std::vector<std::string> notes{};  ///< What is not as in the run, one sentence each.
};

/// Errors: kUsage where no program could show the finding; says why.
Result<Replay> replay_of(const Job& job, const Finding& finding);

/// The same with every call made by all whom it needs, in one order: it ends well.
Result<Replay> repaired(const Replay& replay, const Finding& finding);

}  // namespace lockstep::exports
