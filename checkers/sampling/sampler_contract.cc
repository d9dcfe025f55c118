#include "checkers/sampling/sampler_contract.h"

#include <fmt/format.h>

#include <algorithm>

#include "checkers/sampling/sampler_faults.h"
#include "harness/model/group_view.h"

namespace lockstep::checkers {
namespace {

constexpr std::size_t kEvidenceMax = 12;
constexpr int kAtLast = 28;  // Behind all other codes of samplers.

/// What explains most comes first; the order within one kind of fault is kept.
int place_of(const Fault& fault) {
  if (fault.code == Code::kNotReshuffled && fault.culprits.empty())
    return kAtLast;
  return row_of(fault.code).precedence;
}

/// Whether it depends on what ranks are to be given, and is no fault whatever that may be.
bool of_shares(Code code) {
  return code != Code::kNotReshuffled && code != Code::kWrongLength &&
         code != Code::kIndexOutOfRange;
}

class Judge {
 public:
  explicit Judge(const Run& run) : run_(run), sampled_(sampled(run)) {}

  Verdict verdict() {
    Verdict verdict{.name = "sampler-shards"};
    const bool silent = sampled_.promise.draws.empty();
    if (!sampled_.any || (silent && sampled_.promise.order.empty()))
      return verdict.skip(sampled_.any ? "the sampler declares nothing of what it gives to ranks"
                                       : "no sampler was observed");
    find_faults();
    if (silent) {
      std::erase_if(found_, [](const Found& found) { return of_shares(found.fault.code); });
      // That its order and its length are true says nothing of the shares.
      if (found_.empty())
        return verdict.skip("the sampler declares nothing of what it gives to ranks");
    }
    verdict.examined["epochs"] = sampled_.epochs.size();
    for (const SampledEpoch& epoch : sampled_.epochs) {
      for (const auto& [rank, shard] : epoch.shards)
        verdict.examined["samples"] += shard.samples.size();
    }
    verdict.measures = measures();
    if (!found_.empty()) {
      verdict.outcome = Outcome::kFail;
      verdict.findings = {finding()};
    } else if (!sampled_.incomplete.text.empty()) {
      verdict.because(sampled_.incomplete);
    } else {
      verdict.outcome = Outcome::kPass;
    }
    return verdict;
  }

 private:
  struct Found {
    const SampledEpoch* epoch{};
    Fault fault{};
  };

  void add(const SampledEpoch& epoch, std::vector<Fault> faults) {
    std::stable_sort(faults.begin(), faults.end(),
                     [](const Fault& a, const Fault& b) { return place_of(a) < place_of(b); });
    for (Fault& fault : faults)
      found_.push_back({&epoch, std::move(fault)});
  }

  void find_faults() {
    std::vector<const SampledEpoch*> earlier;
    for (std::size_t i = 0; i < sampled_.epochs.size(); ++i) {
      const SampledEpoch& epoch = sampled_.epochs[i];
      if (!earlier.empty() && earlier.front()->number != epoch.number)
        earlier.clear();
      std::vector<Fault> faults = faults_of_shares(sampled_.promise, epoch);
      for (Fault& fault : faults_of_draws(sampled_.promise, epoch))
        faults.push_back(std::move(fault));
      for (Fault& fault : faults_of_batches(sampled_.promise, epoch))
        faults.push_back(std::move(fault));
      for (Fault& fault : faults_of_batch_sizes(sampled_.promise, epoch))
        faults.push_back(std::move(fault));
      for (Fault& fault : faults_of_dealing(sampled_.promise, epoch))
        faults.push_back(std::move(fault));
      if (!sampled_.promise.draws.empty()) {
        for (Fault& fault : faults_of_seeds(sampled_.promise, sampled_.epochs, epoch))
          faults.push_back(std::move(fault));
      }
      for (Fault& fault : faults_of_order(sampled_.promise, earlier, epoch))
        faults.push_back(std::move(fault));
      add(epoch, std::move(faults));
      earlier.push_back(&epoch);
      const bool last =
          i + 1 == sampled_.epochs.size() || sampled_.epochs[i + 1].number != epoch.number;
      // An epoch that is not on record might have been otherwise.
      if (last && run_.journal_complete && sampled_.incomplete.text.empty()) {
        add(epoch, faults_of_all_epochs(sampled_.promise, earlier));
        add(epoch, faults_of_batch_orders(sampled_.promise, earlier));
      }
    }
  }

  [[nodiscard]] Finding finding() const {
    const auto& [epoch, fault] = found_.front();
    Finding finding;
    finding.code = fault.code;
    finding.headline = fault.headline;
    finding.cause = fault.cause;
    finding.affected = fault.affected;
    finding.step = epoch->epoch;
    finding.at_ns = epoch->at_ns;
    // Anything that is missing might have told of another rank.
    if (run_.journal_complete && sampled_.incomplete.text.empty())
      convict(fault, finding);
    if (!finding.culprits.empty() || !finding.cause.empty())
      finding.confidence = Confidence::kLikely;
    finding.tell(EvidenceKind::kSample, {}, "dataset {}: {}, batches of {}", epoch->number,
                 of_samples(static_cast<std::size_t>(epoch->dataset->length)),
                 epoch->dataset->batch_size);
    for (const Found& other : found_) {
      if (&other == &found_.front())
        continue;
      ++finding.consequences;
      Code code = other.fault.code;
      if (code == finding.code ||
          std::find(finding.also.begin(), finding.also.end(), code) != finding.also.end())
        continue;
      finding.also.push_back(code);
      if (finding.evidence.size() < kEvidenceMax)
        finding.tell(EvidenceKind::kFinding,
                     other.fault.culprits.empty() ? other.fault.affected : other.fault.culprits,
                     "{}: {}", code, other.fault.headline);
    }
    return finding;
  }

  void convict(const Fault& fault, Finding& finding) const {
    finding.culprits = fault.culprits;
    if (const std::optional<Rank> odd = odd_one_out(); odd && fault.code == Code::kShardsOverlap) {
      finding.culprits = {*odd};
      finding.cause = fmt::format(
          "the others divide one permutation, rank {} another: its seed "
          "differs",
          odd->value);
    }
    if (!finding.culprits.empty())
      finding.affected = RankSet::all(run_.plan.world_size).minus(finding.culprits);
  }

  /// The one rank without which, in every epoch, the others' shares are disjoint, although it has
  /// as much in common with them as a permutation of its own would have. Not for shares that are no
  /// permutation's: there a neighbour's mistake looks alike.
  [[nodiscard]] std::optional<Rank> odd_one_out() const {
    const std::int32_t world = run_.plan.world_size;
    if (world < 3 || sampled_.promise.order != "shuffled")
      return std::nullopt;
    std::optional<Rank> odd;
    for (const Rank rank : RankSet::all(world)) {
      if (!disjoint_without(rank))
        continue;
      if (odd)
        return std::nullopt;
      odd = rank;
    }
    return odd;
  }

  [[nodiscard]] bool disjoint_without(Rank rank) const {
    double chance = 0;
    bool independent = false;
    const RankSet others = RankSet::all(run_.plan.world_size).minus({rank});
    for (const SampledEpoch& epoch : sampled_.epochs) {
      const Allowance allowed = allowance(sampled_.promise, *epoch.dataset, run_.plan.world_size);
      if (excess(occurrences(epoch, {.without = rank}), sampled_.promise.repeats) > allowed.repeats)
        return false;
      independent |= look_independent(epoch, {rank}, others);
      // That one more rank has a permutation of its own, and by chance nothing of the rest.
      const auto share = static_cast<std::int64_t>(epoch.shards.at(*others.begin()).samples.size());
      chance += log_disjoint(epoch.dataset->length,
                             share * (static_cast<std::int64_t>(others.size()) - 1), share);
    }
    return independent && chance < kNoChance;
  }

  [[nodiscard]] std::vector<Measure> measures() const {
    double shared = 0;
    double missed = 0;
    if (!sampled_.promise.once())
      return {};
    for (const SampledEpoch& epoch : sampled_.epochs) {
      const Allowance allowed = allowance(sampled_.promise, *epoch.dataset, run_.plan.world_size);
      const std::vector<std::int64_t> times = occurrences(epoch);
      const auto none = std::count(times.begin(), times.end(), 0);
      shared += static_cast<double>(
          std::max<std::int64_t>(excess(times, sampled_.promise.repeats) - allowed.repeats, 0));
      missed += static_cast<double>(std::max<std::int64_t>(
          none - allowed.left_out - static_cast<std::int64_t>(allowed.outside.size()), 0));
    }
    return {{.name = "given to several ranks beyond what is declared",
             .value = shared,
             .rule = "exact",
             .unit = "samples"},
            {.name = "given to no rank beyond what is declared",
             .value = missed,
             .rule = "exact",
             .unit = "samples"}};
  }

  const Run& run_;
  Sampled sampled_;
  std::vector<Found> found_{};
};

}  // namespace

Verdict SamplerContract::check(const Job& job) const { return Judge(job.run()).verdict(); }

}  // namespace lockstep::checkers
