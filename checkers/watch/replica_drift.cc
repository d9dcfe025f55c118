#include "checkers/watch/replica_drift.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "checkers/blame/attribution.h"
#include "checkers/watch/parted.h"
#include "checkers/watch/watch_coverage.h"
#include "harness/history/format.h"
#include "harness/model/call_site.h"
#include "harness/model/coverage.h"

namespace lockstep::checkers {
namespace {

constexpr std::size_t kNamesMax = 8;
constexpr std::ptrdiff_t kSightsOfAPhase = 4;
constexpr double kTurned =
    0.5;  // Cosine. A sum of such steps still has 0.7 when it is twice as long.

std::uint64_t digest_for(Code code, const history::WatchEntry& entry) {
  switch (code) {
    case Code::kGradientNotSynchronised:
    case Code::kOutsideBuckets:
      return entry.gradient.digest;
    case Code::kOptimizerStateDiffers:
      return history::mix(entry.settings, entry.state);
    default:
      return entry.value.digest;
  }
}

/// Ranks that hold the same value, or were given the same gradient.
std::vector<RankSet> classes_of(const Parting& parting) {
  std::map<std::uint64_t, RankSet> by_digest;
  for (const auto& [rank, entry] : parting.sight().by_rank) {
    by_digest[digest_for(parting.code, *entry)].insert(rank);
  }
  std::vector<RankSet> classes;
  for (auto& [digest, ranks] : by_digest)
    classes.push_back(std::move(ranks));
  return classes;
}

std::string_view what_is_wrong(Code code) {
  switch (code) {
    case Code::kGradientNotSynchronised:
      return "was not averaged";
    case Code::kOutsideBuckets:
      return "is reduced by nobody";
    case Code::kOptimizerStateDiffers:
      return "is not stepped alike";
    case Code::kInitialValue:
      return "was never equal";
    default:
      return "differs";
  }
}

void tell_of_parting(const Parting& parting, Finding& finding) {
  const WatchedSight& first = parting.series->sights[parting.first];
  const std::string by =
      parting.apart > 0 ? fmt::format(", by up to {:.2g} of its norm", parting.apart) : "";
  const std::string until =
      parting.first == 0
          ? "never equal since it was watched"
          : fmt::format("equal before step {}", parting.series->sights[parting.first - 1].step);
  RankSet ranks;
  for (const auto& [rank, entry] : first.by_rank)
    ranks.insert(rank);
  finding.tell(EvidenceKind::kValue, ranks,
               "{}: {}, apart before step {} and at {} watched steps from there on{}",
               parting.series->tensor->name, until, first.step,
               parting.series->sights.size() - parting.first, by);
}

double cosine(const std::vector<double>& a, const std::vector<double>& b) {
  const double norms = std::sqrt(std::inner_product(a.begin(), a.end(), a.begin(), 0.0) *
                                 std::inner_product(b.begin(), b.end(), b.begin(), 0.0));
  return norms > 0 ? std::inner_product(a.begin(), a.end(), b.begin(), 0.0) / norms : 1;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// What ranks differ by at each sight: of every parameter, as a share of its norm.
std::vector<std::vector<double>> differences_of(const std::vector<Parting>& partings) {
  std::map<std::uint64_t, std::vector<double>> by_step;
  for (const Parting& parting : partings) {
    for (std::size_t i = parting.first; i < parting.series->sights.size(); ++i) {
      const WatchedSight& sight = parting.series->sights[i];
      const history::WatchValue& first = sight.by_rank.begin()->second->value;
      std::vector<double>& all = by_step[sight.step];
      for (const auto& [rank, entry] : sight.by_rank) {
        for (std::size_t sum = 0; sum < std::size(first.sums); ++sum)
          all.push_back((entry->value.sums[sum] - first.sums[sum]) /
                        std::max(first.norm, entry->value.norm));
      }
    }
  }
  std::vector<std::vector<double>> all;
  for (auto& [step, differences] : by_step) {
    if (all.empty() || differences.size() == all.front().size())
      all.push_back(std::move(differences));
  }
  return all;
}

/// Each rank changes the values for a pass, and changes them back after the step: what they differ
/// by is something else each time, and does not add up. What has parted stays apart by the same, or
/// by more.
bool are_lent(const std::vector<Parting>& partings) {
  const std::vector<std::vector<double>> all = differences_of(partings);
  if (all.size() < static_cast<std::size_t>(kSightsOfAPhase))
    return false;
  std::vector<double> turns, sizes;
  for (std::size_t i = 0; i < all.size(); ++i) {
    sizes.push_back(
        std::sqrt(std::inner_product(all[i].begin(), all[i].end(), all[i].begin(), 0.0)));
    if (i > 0)
      turns.push_back(cosine(all[i - 1], all[i]));
  }
  return median(turns) < kTurned && sizes.back() < 2 * median(sizes);
}

/// Those that are told together: of one replica and one code.
using Key = std::tuple<const GroupView*, std::uint32_t, Code, Severity>;

class Findings {
 public:
  explicit Findings(const Run& run) : run_(run) {}

  void add(const Parting& parting) {
    const Key key{parting.series->group, parting.series->replica, parting.code, parting.severity};
    all_[key].push_back(parting);
  }

  std::vector<Finding> finish() {
    std::vector<Finding> findings;
    for (auto& [key, partings] : all_) {
      std::stable_sort(partings.begin(), partings.end(), [](const Parting& a, const Parting& b) {
        return a.sight().step < b.sight().step;
      });
      findings.push_back(told(partings));
    }
    return findings;
  }

 private:
  [[nodiscard]] Finding told(const std::vector<Parting>& partings) const {
    const Parting& first = partings.front();
    const GroupView& group = *first.series->group;
    Finding finding;
    finding.code = first.code;
    finding.severity = first.severity;
    finding.group = group.label();
    finding.step = static_cast<std::int64_t>(first.sight().step);
    finding.at_ns = first.sight().at_ns;
    for (const Parting& parting : partings) {
      if (parting.sight().step > first.sight().step)
        ++finding.consequences;
      else if (finding.names.size() < kNamesMax)
        finding.names.push_back(parting.series->tensor->name);
      if (finding.evidence.size() < kNamesMax)
        tell_of_parting(parting, finding);
    }
    const Attribution blame = blame_minority(group, classes_of(first), run_.journal_complete);
    finding.culprits = blame.culprits;
    for (const auto& [rank, entry] : first.sight().by_rank) {
      if (!finding.culprits.contains(rank))
        finding.affected.insert(rank);
    }
    finding.confidence = Confidence::kCertain;
    finding.cause = first.why;
    if (first.code == Code::kParameterDiffers && are_lent(partings)) {
      finding.severity = Severity::kNote;
      finding.cause =
          "what they differ by is something else at each watched step, and does not add up: right "
          "where each rank changes the values for a pass and changes them back after the step";
    }
    finding.headline = headline(finding, partings.size());
    add_site_of_module(group.members.front(), *first.series->tensor, finding);
    return finding;
  }

  static std::string headline(const Finding& finding, std::size_t parameters) {
    const std::string who =
        finding.culprits.empty() ? words(finding.affected) : words(finding.culprits);
    return fmt::format("step {}: {}{} {} {} {}", *finding.step, finding.names.front(),
                       parameters > 1 ? fmt::format(" (and {} more)", parameters - 1) : "",
                       what_is_wrong(finding.code), finding.culprits.empty() ? "between" : "on",
                       who);
  }

  const Run& run_;
  std::map<Key, std::vector<Parting>> all_{};
};

/// When gradients of a replica were averaged, and by which optimizers.
class Reductions {
 public:
  explicit Reductions(const std::vector<WatchedSeries>& all) {
    for (const WatchedSeries& series : all) {
      std::uint64_t& first_ns = first_step_ns_[{series.group, series.replica, series.optimizer}];
      if (!series.sights.empty() && (first_ns == 0 || series.sights.front().at_ns < first_ns))
        first_ns = series.sights.front().at_ns;
      for (const WatchedSight& sight : series.sights) {
        if (was_reduced(sight)) {
          std::uint64_t& last_ns = last_ns_[{series.group, series.replica}];
          last_ns = std::max(last_ns, sight.at_ns);
        }
      }
    }
  }

  [[nodiscard]] Reduced of(const WatchedSeries& series) const {
    const auto last = last_ns_.find({series.group, series.replica});
    if (last == last_ns_.end())
      return Reduced::kNever;
    const auto first = first_step_ns_.find({series.group, series.replica, series.optimizer});
    if (last->second < first->second)
      return Reduced::kBefore;
    const auto later =
        std::count_if(series.sights.begin(), series.sights.end(),
                      [&](const WatchedSight& sight) { return sight.at_ns > last->second; });
    return later >= kSightsOfAPhase ? Reduced::kNoMore : Reduced::kYes;
  }

 private:
  std::map<std::pair<const GroupView*, std::uint32_t>, std::uint64_t> last_ns_{};
  std::map<std::tuple<const GroupView*, std::uint32_t, std::uint32_t>, std::uint64_t>
      first_step_ns_{};
};

}  // namespace

Verdict ReplicaDrift::check(const Job& job) const {
  Verdict verdict{.name = std::string(name())};
  const std::vector<WatchedSeries> all = watched_series(job.groups());
  const WatchCoverage coverage = watch_coverage(job.run());
  if (!coverage.asked) {
    verdict.outcome = Outcome::kSkipped;
    verdict.reason = "values were not watched";
    return verdict;
  }
  Findings findings(job.run());
  std::size_t open = 0;
  const Reductions reductions(all);
  for (const WatchedSeries& series : all) {
    const std::optional<Parting> parting = parting_of(series, reductions.of(series));
    if (parting && parting->code != Code::kNone)
      findings.add(*parting);
    open += parting && parting->code == Code::kNone ? 1 : 0;
  }
  verdict.examined["parameters"] = all.size();
  verdict.findings = findings.finish();
  verdict.reason = coverage.text;
  const bool wrong =
      std::any_of(verdict.findings.begin(), verdict.findings.end(),
                  [](const Finding& finding) { return finding.severity == Severity::kError; });
  if (wrong) {
    verdict.outcome = Outcome::kFail;
  } else if (all.empty()) {
    verdict.because(incomplete(coverage.why_nothing));
  } else if (open > 0) {
    verdict.reason = fmt::format("{} {} differed at the last watched steps, which were too few; {}",
                                 open, open == 1 ? "parameter" : "parameters", coverage.text);
  } else {
    verdict.outcome = Outcome::kPass;
  }
  return verdict;
}

}  // namespace lockstep::checkers
