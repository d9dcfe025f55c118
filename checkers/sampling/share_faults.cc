#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "checkers/blame/attribution.h"
#include "checkers/sampling/sampler_faults.h"
#include "harness/model/group_view.h"

namespace lockstep::checkers {
namespace {

class Shares {
 public:
  Shares(const SamplerPromise& promise, const SampledEpoch& epoch)
      : promise_(promise),
        epoch_(epoch),
        data_(*epoch.dataset),
        world_(static_cast<std::int32_t>(epoch.shards.size())),
        everyone_(RankSet::all(world_)),
        allowed_(allowance(promise, data_, world_)),
        times_(occurrences(epoch)),
        excess_(excess(times_, promise.repeats)) {
    std::set<std::int64_t> outside(allowed_.outside.begin(), allowed_.outside.end());
    for (std::int64_t sample = 0; sample < data_.length; ++sample) {
      const std::int64_t seen = times_[static_cast<std::size_t>(sample)];
      if (seen == 0 && outside.count(sample) == 0)
        missed_.push_back(sample);
      if (seen > promise.repeats)
        repeated_.push_back(sample);
    }
  }

  std::vector<Fault> faults() {
    out_of_range();
    nothing();
    const bool counts_explain = unequal_counts_explain();
    if (counts_explain)
      unequal_counts();
    repeated();
    missed();
    if (!counts_explain)
      unequal_counts();
    return std::move(faults_);
  }

 private:
  void out_of_range() {
    std::set<std::int64_t> foreign;
    RankSet ranks;
    for (const auto& [rank, shard] : epoch_.shards) {
      for (const std::int64_t sample : shard.samples) {
        if (sample >= 0 && sample < data_.length)
          continue;
        foreign.insert(sample);
        ranks.insert(rank);
      }
    }
    if (foreign.empty())
      return;
    const bool padding = data_.length < world_ && *foreign.begin() >= data_.length;
    faults_.push_back(
        {.code = Code::kIndexOutOfRange,
         .headline =
             fmt::format("samples that the dataset does not have are given in {}: {} on {}",
                         name_of(epoch_), listed({foreign.begin(), foreign.end()}), words(ranks)),
         .cause = padding ? fmt::format("there are fewer samples than ranks ({} and {}), and what "
                                        "fills up the shares counts on past the last sample",
                                        data_.length, world_)
                          : "",
         .affected = ranks});
  }

  void nothing() {
    const bool all_empty =
        std::all_of(epoch_.shards.begin(), epoch_.shards.end(),
                    [](const auto& shard) { return shard.second.samples.empty(); });
    if (!all_empty || dealt_out(promise_, allowed_) == 0)
      return;
    const std::optional<std::int64_t> promised = epoch_.shards.begin()->second.promised;
    faults_.push_back(
        {.code = Code::kEmptyEpoch,
         .headline =
             fmt::format("the sampler yields nothing: {} is empty on all ranks", name_of(epoch_)),
         .cause = promised.value_or(0) > 0
                      ? fmt::format("its length promises {} batches: what was to be given may have "
                                    "been used up in counting it",
                                    *promised)
                      : "",
         .affected = everyone_});
  }

  // --- How much each rank is given.

  /// Batches and samples of each rank.
  using Count = std::pair<std::size_t, std::size_t>;

  [[nodiscard]] static Count count_of(const Shard& shard) {
    return {shard.batch_sizes.size(), shard.samples.size()};
  }

  [[nodiscard]] bool count_is_kept(const Shard& shard) const {
    const auto samples = static_cast<std::int64_t>(shard.samples.size());
    const std::int64_t step = allowed_.unit / world_;  // A sample, or a batch.
    return samples > data_.length / world_ - step &&
           samples < (data_.length + world_ - 1) / world_ + step;
  }

  /// Ranks whose count is another than that of most; all of them where there are no most.
  [[nodiscard]] RankSet unlike_most(bool* strict_majority) const {
    std::map<Count, RankSet> classes;
    RankSet legal;
    for (const auto& [rank, shard] : epoch_.shards) {
      const bool kept = promise_.remainder == "keep" && !promise_.infinite && count_is_kept(shard);
      (kept ? legal : classes[count_of(shard)]).insert(rank);
    }
    *strict_majority = false;
    if (promise_.remainder == "keep" && !promise_.infinite) {
      *strict_majority = is_majority(legal.size(), everyone_.size());
      return everyone_.minus(legal);
    }
    if (classes.size() < 2)
      return {};
    const auto most = std::max_element(
        classes.begin(), classes.end(),
        [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    *strict_majority = is_majority(most->second.size(), everyone_.size());
    return *strict_majority ? everyone_.minus(most->second) : everyone_;
  }

  /// Without the batches that a minority was given too many, or with those that it lacks, all is as
  /// it should be.
  [[nodiscard]] bool unequal_counts_explain() const {
    bool majority = false;
    const RankSet unlike = unlike_most(&majority);
    if (unlike.empty() || !majority || !promise_.once())
      return false;
    std::size_t most = 0;
    std::size_t samples = 0;
    for (const auto& [rank, shard] : epoch_.shards) {
      if (!unlike.contains(rank)) {
        most = std::max(most, shard.batch_sizes.size());
        samples = std::max(samples, shard.samples.size());
      }
    }
    std::size_t lacking = 0;
    for (const Rank rank : unlike)
      lacking += samples - std::min(samples, epoch_.shards.at(rank).samples.size());
    return excess(occurrences(epoch_, {.batches = most}), promise_.repeats) <= allowed_.repeats &&
           missed_.size() <= static_cast<std::size_t>(allowed_.left_out) + lacking;
  }

  void unequal_counts() {
    bool majority = false;
    const RankSet unlike = unlike_most(&majority);
    if (unlike.empty() || promise_.remainder.empty())
      return;
    const bool batches =
        std::any_of(epoch_.shards.begin(), epoch_.shards.end(), [&](const auto& s) {
          return s.second.batch_sizes.size() != epoch_.shards.begin()->second.batch_sizes.size();
        });
    std::vector<std::string> counts;
    for (const auto& [rank, shard] : epoch_.shards)
      counts.push_back(std::to_string(batches ? shard.batch_sizes.size() : shard.samples.size()));
    const char* const what = batches ? "batches" : "samples";
    const bool equal = std::set(counts.begin(), counts.end()).size() == 1;
    Fault fault{
        .code = Code::kUnequalLengths,
        .headline = equal ? fmt::format("every rank is given {} {} in {}, which is not its "
                                        "part of them",
                                        counts.front(), what, name_of(epoch_))
                          : fmt::format("ranks are given different numbers of {} in {}: "
                                        "{} on ranks 0 to {}",
                                        what, name_of(epoch_), fmt::join(counts, ", "), world_ - 1),
        .affected = unlike};
    // A partition that is merely uneven is the rule's doing, not a rank's.
    const bool partition = excess_ == 0 && missed_.empty();
    if (majority && !partition)
      fault.culprits = unlike;
    if (partition)
      fault.cause =
          "nothing is given twice or left out: what the world size does not divide is "
          "dealt out as it comes";
    faults_.push_back(std::move(fault));
  }

  // --- Who is given what.

  void repeated() {
    if (promise_.draws != "once" && promise_.draws != "repeated")
      return;
    if (promise_.infinite || excess_ <= allowed_.repeats)
      return;
    Samples on_several;
    std::map<Rank, Samples> within;
    for (const std::int64_t sample : repeated_) {
      if (holders(epoch_, sample).size() > 1)
        on_several.push_back(sample);
    }
    for (const auto& [rank, shard] : epoch_.shards) {
      std::map<std::int64_t, std::int64_t> seen;
      for (const std::int64_t sample : shard.samples) {
        if (++seen[sample] == promise_.repeats + 1)
          within[rank].push_back(sample);
      }
    }
    if (const std::string fills = undeclared_padding(); !fills.empty())
      faults_.push_back(
          {.code = Code::kPaddingCounted, .headline = fills, .cause = "", .affected = everyone_});
    else if (static_cast<std::int64_t>(on_several.size()) > allowed_.repeats || within.empty())
      overlap(on_several);
    else
      within_a_share(within);
  }

  /// Shares are equal, nothing is left out, and what comes again is just what makes them equal.
  [[nodiscard]] std::string undeclared_padding() const {
    bool majority = false;
    if (promise_.remainder == "pad" || promise_.remainder.empty() || !missed_.empty() ||
        !promise_.once() || !unlike_most(&majority).empty())
      return "";
    std::int64_t filled = 0;
    std::int64_t filled_to_batches = 0;
    for (const Samples& group : allowed_.groups) {
      const auto size = static_cast<std::int64_t>(group.size());
      const std::int64_t batch = world_ * data_.batch_size;
      filled += (world_ - size % world_) % world_;
      filled_to_batches += (batch - size % batch) % batch;
    }
    if (excess_ != filled && excess_ != filled_to_batches)
      return "";
    return fmt::format(
        "padding is counted as data in {}: {} given again to make shares equal "
        "({}), and the sampler declares that it repeats none",
        name_of(epoch_), excess_ == 1 ? "1 sample is" : fmt::format("{} samples are", excess_),
        listed(repeated_));
  }

  void overlap(const Samples& shared) {
    RankSet ranks;
    for (const std::int64_t sample : shared) {
      for (const Rank rank : holders(epoch_, sample))
        ranks.insert(rank);
    }
    const std::string missed =
        missed_.size() > static_cast<std::size_t>(allowed_.left_out)
            ? fmt::format("; {} are given to none: {}", missed_.size(), listed(missed_))
            : "";
    std::string cause;
    std::string headline =
        fmt::format("{} of {} are given to more than one rank in epoch {}: {}{}", shared.size(),
                    of_samples(times_.size()), epoch_.epoch, listed(shared), missed);
    const RankSet alike = of_one_sequence(epoch_);
    if (all_get_all()) {
      headline = fmt::format("every rank is given all {} in epoch {}", of_samples(times_.size()),
                             epoch_.epoch);
      cause = "every rank sees all data: nothing divides by rank";
    } else if (!alike.empty()) {
      cause = fmt::format(
          "{} are given the same samples in the same order: two ranks take one "
          "rank's share",
          words(alike));
      ranks = alike;
    } else if (blocks()) {
      cause = "each rank takes a block, and neighbouring blocks overlap: the bounds are off";
    } else if (promise_.order == "shuffled" && look_independent(epoch_, everyone_, everyone_)) {
      cause = "the permutation differs per rank before it is divided: seeds differ";
    }
    faults_.push_back(
        {.code = Code::kShardsOverlap, .headline = headline, .cause = cause, .affected = ranks});
  }

  [[nodiscard]] bool all_get_all() const {
    const std::size_t expected = times_.size() - allowed_.outside.size();
    return world_ > 1 &&
           std::all_of(epoch_.shards.begin(), epoch_.shards.end(), [&](const auto& s) {
             return std::set<std::int64_t>(s.second.samples.begin(), s.second.samples.end())
                        .size() >= expected;
           });
  }

  /// Every share is a run of consecutive samples; the first comes after the last.
  [[nodiscard]] bool blocks() const {
    return std::all_of(epoch_.shards.begin(), epoch_.shards.end(), [&](const auto& s) {
      const Samples& samples = s.second.samples;
      return samples.size() > 1 &&
             std::adjacent_find(samples.begin(), samples.end(), [&](auto a, auto b) {
               return b != (a + 1) % data_.length;
             }) == samples.end();
    });
  }

  void within_a_share(const std::map<Rank, Samples>& within) {
    RankSet ranks;
    std::set<std::int64_t> all;
    for (const auto& [rank, samples] : within) {
      ranks.insert(rank);
      all.insert(samples.begin(), samples.end());
    }
    Fault fault{
        .code = Code::kSampleRepeated,
        .headline = fmt::format(
            "{} more than once to one rank in {}: {} on {}",
            all.size() == 1 ? "1 sample is given" : fmt::format("{} samples are given", all.size()),
            name_of(epoch_), listed({all.begin(), all.end()}), words(ranks)),
        .affected = ranks};
    // With another sample missed, a rank wrote one over the other; else it may be how all fill up.
    if (is_minority(ranks.size(), everyone_.size()) &&
        missed_.size() > static_cast<std::size_t>(allowed_.left_out))
      fault.culprits = ranks;
    faults_.push_back(std::move(fault));
  }

  void missed() {
    if (!promise_.once() || missed_.size() <= static_cast<std::size_t>(allowed_.left_out))
      return;
    std::string cause;
    if (promise_.by_length) {
      std::set<std::int64_t> lengths;
      std::set<std::size_t> buckets;
      for (const std::int64_t sample : missed_) {
        lengths.insert(data_.item_lengths[static_cast<std::size_t>(sample)]);
        if (const auto bucket = data_.bucket_of(sample); bucket)
          buckets.insert(*bucket);
      }
      const bool at_boundaries = std::all_of(lengths.begin(), lengths.end(), [&](auto length) {
        return std::binary_search(data_.boundaries.begin(), data_.boundaries.end(), length);
      });
      if (at_boundaries)
        cause = fmt::format(
            "every one of them has a length exactly at a boundary ({}): the search "
            "for its bucket leaves that out",
            listed({lengths.begin(), lengths.end()}));
      else if (buckets.size() == 1)
        cause =
            fmt::format("all of them are of one bucket, lengths {} to {}",
                        data_.boundaries[*buckets.begin()], data_.boundaries[*buckets.begin() + 1]);
    }
    faults_.push_back(
        {.code = Code::kSamplesMissed,
         .headline = fmt::format("{} of {} are given to no rank in epoch {}: {}", missed_.size(),
                                 of_samples(times_.size()), epoch_.epoch, listed(missed_)),
         .cause = cause,
         .affected = everyone_});
  }

  const SamplerPromise& promise_;
  const SampledEpoch& epoch_;
  const Dataset& data_;
  std::int32_t world_;
  RankSet everyone_;
  Allowance allowed_;
  std::vector<std::int64_t> times_;
  std::int64_t excess_;
  Samples missed_{}, repeated_{};
  std::vector<Fault> faults_{};
};

}  // namespace

std::vector<Fault> faults_of_shares(const SamplerPromise& promise, const SampledEpoch& epoch) {
  return Shares(promise, epoch).faults();
}

}  // namespace lockstep::checkers
