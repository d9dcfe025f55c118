// How the lockstep of the lowest rank judges the ranks of all hosts.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "checkers/hang/stall.h"
#include "checkers/hang/wait_for_graph.h"
#include "checkers/worlds.h"
#include "harness/history/hosts.h"
#include "harness/session/job_hosts.h"
#include "harness/session/stall_schedule.h"

namespace lockstep::session {
namespace {

using history::Heads;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kStillFor{1'500};  // Ranks that wait for one of them do so for a while.
constexpr milliseconds kFirstPause{2'000};
constexpr seconds kAnswerMayTake{20};

std::int32_t first_of(const RankSet& ranks) {
  return ranks.empty() ? INT32_MAX : ranks.begin()->value;
}

}  // namespace

bool JobHosts::is_judge() const {
  return !own_.ends && std::none_of(others_.begin(), others_.end(), [&](const Heads& other) {
    return !other.ends && !is_silent(other) && first_of(other.ranks) < first_of(own_.ranks);
  });
}

void JobHosts::judge() {
  if (!verdict().empty())
    return;
  if (asked_) {
    if (all_have_answered())
      weigh_answers();
    else if (clock_() > asked_at_ + kAnswerMayTake)
      tell_no_answer();
    return;
  }
  if (!all_stand_still()) {
    pause_ = kFirstPause;
    not_before_ = {};
    stall_told_ = false;
  } else if (clock_() >= not_before_) {
    ask(/*again=*/false);
  }
}

bool JobHosts::all_stand_still() const {
  std::size_t ranks = own_.ranks.size();
  bool still = own_.still_ms >= static_cast<std::uint64_t>(kStillFor.count()), waits = own_.waits;
  for (const Heads& other : others_) {
    ranks += other.ranks.size();
    waits = waits || other.waits;
    still = still && !is_silent(other) &&
            (other.ends || other.still_ms >= static_cast<std::uint64_t>(kStillFor.count()));
  }
  return still && waits && ranks == static_cast<std::size_t>(own_.world_size);
}

void JobHosts::ask(bool again) {
  ++own_.question;
  own_.again = again;
  asked_ = true;
  asked_at_ = clock_();
}

bool JobHosts::has_answered(const Heads& one) const {
  const auto at = one.answered.find(own_.name());
  return at != one.answered.end() && at->second >= own_.question;
}

bool JobHosts::all_have_answered() const {
  return has_answered(own_) && std::all_of(others_.begin(), others_.end(), [&](const Heads& other) {
           return other.closed || has_answered(other);
         });
}

/// Twice, the second time without disturbing anybody: whoever slept from one to the other did so
/// while the others were looked at.
void JobHosts::weigh_answers() {
  asked_ = false;
  const std::optional<Run> whole = all_together();
  std::optional<std::string> why = whole ? checkers::certain_deadlock_of_all(*whole) : std::nullopt;
  if (why && own_.again)
    own_.verdict = std::move(*why);
  else if (why)
    ask(/*again=*/true);
  if (why)
    return;
  if (whole)
    tell_stall(*whole);
  wait_before_asking();
}

void JobHosts::wait_before_asking() {
  not_before_ = clock_() + pause_;
  pause_ = std::min<Duration>(pause_ * 2, kLookAtLeastEvery);
}

void JobHosts::tell_no_answer() {
  asked_ = false;
  wait_before_asking();
  if (std::exchange(stall_told_, true))
    return;
  for (const Heads& other : others_) {
    if (!other.closed && !has_answered(other))
      notices_.tell(
          "STALLED",
          fmt::format("{} does not answer: whether the job can go on is not known", other.host));
  }
}

/// What nothing proves, once it has lasted: told, and nobody is ended for it.
void JobHosts::tell_stall(const Run& whole) {
  const auto limit = std::chrono::duration_cast<milliseconds>(checkers::kStallIsNoticedAfter);
  if (stall_told_ || own_.still_ms < static_cast<std::uint64_t>(limit.count()))
    return;
  const checkers::WaitForGraph graph(whole, kNeverNs);
  const std::optional<Finding> stalled = checkers::stall(whole, graph, "so far");
  if (!stalled)
    return;
  stall_told_ = true;
  notices_.tell("STALLED", stalled->headline);
  if (!stalled->cause.empty())
    notices_.detail(stalled->cause);
  for (const std::string& line : own_.doing)
    notices_.detail(fmt::format("{}: {}", own_.host, line));
  for (const std::string& line : doing())
    notices_.detail(line);
}

std::optional<Run> JobHosts::all_together() const {
  std::vector<Run> runs;
  std::vector<const Heads*> all{&own_};
  for (const Heads& other : others_)
    all.push_back(&other);
  for (const Heads* const one : all) {
    Result<Run> run =
        one->closed ? history::open_run(one->directory) : history::read_snapshot(one->directory);
    if (!run)
      return std::nullopt;
    runs.push_back(std::move(*run));
  }
  Result<Run> whole = history::merge_hosts(std::move(runs));
  if (!whole)
    return std::nullopt;
  whole->live = true;
  whole->plan.world_size = own_.world_size;
  return std::move(*whole);
}

}  // namespace lockstep::session
