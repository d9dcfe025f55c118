#include "checkers/order/loop_exit.h"

#include <fmt/format.h>

#include <algorithm>

#include "checkers/blame/attribution.h"
#include "checkers/order/lines_of_some.h"
#include "checkers/order/loop_parting.h"
#include "harness/model/coverage.h"
#include "harness/model/matching.h"
#include "harness/model/recovery.h"

namespace lockstep::checkers {
namespace {

constexpr std::uint64_t kPeriodMax = 512;
constexpr std::uint64_t kRepetitionsMin = 2;

/// The first place where the members did not all issue one call.
std::optional<std::uint64_t> first_difference(const GroupView& group) {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  for (const Member& member : group.members) {
    begin = std::max(begin, member.first_seq);
    end = std::max(end, member.end_seq());
  }
  for (std::uint64_t seq = begin; seq < end; ++seq) {
    const Collective* first = group.members.front().at(seq);
    for (const Member& member : group.members) {
      const Collective* call = member.at(seq);
      if (first == nullptr || call == nullptr || call->overlapped || !agree(*first, *call))
        return seq;
    }
  }
  return std::nullopt;
}

/// Before it, the first place where all issued one call, and not from one line: who left the loop
/// may have met the others' next round with a call that looks like it.
std::optional<std::uint64_t> lines_part_before(const GroupView& group, std::uint64_t end) {
  std::uint64_t begin = 0;
  for (const Member& member : group.members)
    begin = std::max(begin, member.first_seq);
  for (std::uint64_t seq = begin; seq < end; ++seq) {
    const Member& first = group.members.front();
    for (const Member& member : group.members) {
      const std::uint64_t key = member.site_key(*member.at(seq));
      if (key == 0)
        return std::nullopt;
      if (key != first.site_key(*first.at(seq)))
        return seq;
    }
  }
  return std::nullopt;
}

/// Some wait or failed there, or issued calls that do not agree.
bool is_trouble_at(const GroupView& group, std::uint64_t seq) {
  const Collective* first = nullptr;
  for (const Member& member : group.members) {
    const Collective* const call = member.at(seq);
    if (call == nullptr)
      continue;
    if (call->failed || (!call->completed_ns && !call->completion_unseen) ||
        (first != nullptr && !agree(*first, *call)))
      return true;
    first = call;
  }
  return false;
}

/// Where they came to grief, or before, where their lines parted.
std::optional<Finding> exit_in(const Run& run, const GroupView& group, std::uint64_t seq) {
  if (issued_by_some_only(run, group))
    return std::nullopt;
  const LoopParting here(run, group, seq);
  if (here.is_an_exit(/*trouble_later=*/false))
    return here.finding();
  const auto parted = lines_part_before(group, seq);
  if (!parted || *parted == 0 || !is_trouble_at(group, seq))
    return std::nullopt;
  const LoopParting before(run, group, *parted);
  return before.is_an_exit(/*trouble_later=*/true) ? std::optional(before.finding()) : std::nullopt;
}

}  // namespace

bool is_same_call(const Member& member, std::uint64_t a, std::uint64_t b) {
  const Collective* x = member.at(a);
  const Collective* y = member.at(b);
  return x != nullptr && y != nullptr && member.site_key(*x) != 0 &&
         member.site_key(*x) == member.site_key(*y) && agree(*x, *y);
}

std::optional<Repetition> repetition_before(const Member& member, std::uint64_t seq) {
  for (std::uint64_t period = 1; period <= kPeriodMax; ++period) {
    if (seq < member.first_seq + kRepetitionsMin * period)
      return std::nullopt;
    std::uint64_t begin = seq - period + 1;  // From here on each call comes again a period later.
    while (begin > member.first_seq && is_same_call(member, begin - 1, begin - 1 + period))
      --begin;
    if (seq - begin >= kRepetitionsMin * period)
      return Repetition{begin, period};
  }
  return std::nullopt;
}

Verdict LoopExit::check(const Job& job) const {
  const Run& run = job.run();
  Verdict verdict{.name = std::string(name())};
  if (!run.plan.scenario.empty())
    return verdict.skip("the plan of the scenario says how many batches each rank has");
  if (run.live || !run.journal_complete)
    verdict.because(why_open(run));
  std::optional<Finding> first;
  for (const GroupView& group : job.groups()) {
    if (group.members.size() < 2)
      continue;
    ++verdict.examined["groups"];
    const auto seq = first_difference(group);
    if (!seq || *seq == 0 || was_got_over(run, group, *seq))
      continue;
    if (!known_before(group, *seq)) {
      verdict.because(
          incomplete(fmt::format("not all before {}#{} is known", group.label(), *seq)));
      continue;
    }
    auto finding = exit_in(run, group, *seq);
    if (finding && (!first || finding->at_ns < first->at_ns))
      first = std::move(finding);
  }
  if (first) {
    verdict.fail(std::move(*first));
  } else if (verdict.reason.empty()) {
    verdict.outcome = Outcome::kPass;
  }
  return verdict;
}

}  // namespace lockstep::checkers
