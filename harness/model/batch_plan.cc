#include "harness/model/batch_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "harness/model/coverage.h"
#include "harness/model/matching.h"

namespace lockstep {
namespace {

std::int64_t batches_of(const Plan& plan, Rank rank) {
  const auto index = static_cast<std::size_t>(rank.value);
  return rank.value >= 0 && index < plan.batches.size() ? plan.batches[index] : 0;
}

std::int64_t most_batches(const Plan& plan) {
  return *std::max_element(plan.batches.begin(), plan.batches.end());
}

/// What a rank was asked to do with its batches, in this order.
struct Asked {
  std::vector<const Request*> steps{};
  const Request* exhausted{};
  const Request* last{};
};

Asked asked_of(const Run& run, Rank rank) {
  Asked asked;
  for (const Request& request : run.requests) {
    if (request.role != Role::kRank || request.rank != rank)
      continue;
    if (request.message == "step")
      asked.steps.push_back(&request);
    if (request.message == "exhausted")
      asked.exhausted = &request;
    if (asked.last == nullptr || request.at_ns >= asked.last->at_ns)
      asked.last = &request;
  }
  std::stable_sort(asked.steps.begin(), asked.steps.end(),
                   [](const Request* a, const Request* b) { return a->at_ns < b->at_ns; });
  return asked;
}

/// All its batches done, told that there are no more, and nothing asked since.
bool is_through(const Run& run, Rank rank, const Asked& asked) {
  return asked.exhausted != nullptr && asked.exhausted == asked.last &&
         asked.exhausted->outcome == "ok" &&
         static_cast<std::int64_t>(asked.steps.size()) == batches_of(run.plan, rank) &&
         std::all_of(asked.steps.begin(), asked.steps.end(),
                     [](const Request* step) { return step->outcome == "ok"; });
}

/// Until `short_one` ran out both issued the same calls, and what came next was for one batch more.
bool went_on(const Run& run, const Member& short_one, const Member& other, std::size_t batches) {
  for (std::uint64_t seq = std::max(short_one.first_seq, other.first_seq); seq < short_one.issued;
       ++seq) {
    const Collective* a = short_one.at(seq);
    const Collective* b = other.at(seq);
    if (a == nullptr || b == nullptr || !agree(*a, *b))
      return false;
  }
  const Collective* owed = other.at(short_one.issued);
  const Asked asked = asked_of(run, other.rank);
  return owed != nullptr && asked.steps.size() > batches &&
         owed->issued_ns >= asked.steps[batches]->at_ns;
}

}  // namespace

RankSet taking_part(const Plan& plan, std::int64_t step) {
  RankSet ranks;
  for (std::size_t rank = 0; rank < plan.batches.size(); ++rank) {
    if (plan.batches[rank] > step)
      ranks.insert(Rank{static_cast<std::int32_t>(rank)});
  }
  return ranks.empty() ? RankSet::all(plan.world_size) : ranks;
}

Rank buffer_source(const Plan& plan, std::int64_t step) {
  if (plan.batches.empty())
    return Rank{0};
  const RankSet ranks = taking_part(plan, step);
  return ranks.empty() ? Rank{0} : *std::prev(ranks.end());
}

bool ran_out(const Run& run, const GroupView& group, const RankSet& waiting,
             const RankSet& absent) {
  if (run.plan.scenario.empty() || !journal_is_whole(run) || absent.empty() || waiting.empty() ||
      run.plan.batches.size() != static_cast<std::size_t>(run.plan.world_size))
    return false;
  for (const Rank rank : absent) {
    const Member* member = group.member(rank);
    const Asked asked = asked_of(run, rank);
    if (member == nullptr || !member->is_complete || !is_through(run, rank, asked))
      return false;
    for (const Rank other : waiting) {
      const Member* peer = group.member(other);
      if (peer == nullptr || !went_on(run, *member, *peer, asked.steps.size()))
        return false;
    }
  }
  return true;
}

std::string who_ran_out(const Plan& plan, const RankSet& ranks) {
  std::string text;
  for (const Rank rank : ranks)
    text += fmt::format("{}rank {} ran {} of {} batches", text.empty() ? "" : ", ", rank.value,
                        batches_of(plan, rank), most_batches(plan));
  return text + (ranks.size() == 1 ? "; its loader ended" : "; their loaders ended");
}

}  // namespace lockstep
