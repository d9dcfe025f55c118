#include "checkers/watch/gradient_sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checkers/watch/parted.h"
#include "checkers/watch/watch_coverage.h"
#include "harness/model/call_site.h"
#include "harness/model/watched_series.h"

namespace lockstep::checkers {
namespace {

constexpr std::size_t kSightsMin = 3;
constexpr std::size_t kNamesMax = 8;

/// What all members of a group handed in at one place.
struct Together {
  std::uint64_t position{}, numel{};
  std::array<double, 2> sums{};
  std::uint32_t site{};     ///< Of the first member.
  std::uint32_t version{};  ///< The highest one.
  bool alike{};             ///< All of them the same.
};

/// By the program's own reductions, in the order of their places.
std::vector<Together> handed_in_together(const GroupView& group) {
  std::map<std::uint64_t, std::vector<const WatchedHandedIn*>> places;
  for (const Member& member : group.members) {
    for (const WatchedHandedIn& handed : member.process->watched->handed_in) {
      const bool known = handed.site != 0 && handed.site < member.process->sites.size();
      if (handed.group == member.group && known &&
          !is_of_replica(member.process->sites[handed.site]))
        places[handed.position].push_back(&handed);
    }
  }
  std::vector<Together> all;
  for (const auto& [position, handed] : places) {
    const WatchedHandedIn& first = *handed.front();
    // Where all but one hand in zeros it is the gradient of that one: of a part that only it has.
    const auto given = std::count_if(handed.begin(), handed.end(), [](const WatchedHandedIn* each) {
      return each->value.norm > 0;
    });
    if (handed.size() != group.members.size() || given < 2 ||
        std::any_of(handed.begin(), handed.end(),
                    [&](const WatchedHandedIn* other) { return other->numel != first.numel; }))
      continue;
    Together together{.position = position, .numel = first.numel, .site = first.site};
    together.alike = std::all_of(handed.begin(), handed.end(), [&](const WatchedHandedIn* other) {
      return other->value.digest == first.value.digest;
    });
    for (const WatchedHandedIn* const each : handed) {
      for (std::size_t i = 0; i < 2; ++i)
        together.sums[i] += each->value.sums[i];
      together.version = std::max(together.version, each->version);
    }
    all.push_back(together);
  }
  return all;
}

enum class Made : std::uint8_t { kSummed, kAveraged };

/// How the gradients of a parameter were made of what was handed in, where that is known and always
/// the same.
struct Treatment {
  const WatchedSeries* series{};
  Made made{};
  std::uint32_t site{};
  std::uint32_t version{};
  bool alike{};  ///< The ranks always handed in the same: parts of a model, perhaps, of one batch.
  std::uint64_t settings{};
};

bool is_times(const history::WatchValue& given, const Together& together, double factor) {
  constexpr double kRounding = 1e-3;  // Of half precision; two and one are further apart.
  constexpr double kEnough = 0.05;    // Sums near zero are any factor of each other.
  double largest = 0;
  for (std::size_t i = 0; i < 2; ++i) {
    const double expected = factor * together.sums[i];
    largest = std::max(largest, std::abs(expected));
    if (std::abs(given.sums[i] - expected) > kRounding * given.norm)
      return false;
  }
  return largest > kEnough * given.norm;
}

/// At one step, of what was handed in since the sight before.
std::optional<Treatment> treatment_at(const WatchedSeries& series, std::size_t at,
                                      const std::vector<Together>& all) {
  const WatchedSight& sight = series.sights[at];
  const history::WatchEntry& entry = *sight.by_rank.begin()->second;
  const history::WatchValue& given = entry.gradient;
  if (!sight.all_have(history::kGradientSeen) || !sight.gradients_equal() || !(given.norm > 0))
    return std::nullopt;
  const std::uint64_t since = at == 0 ? 0 : series.sights[at - 1].position;
  const auto size = static_cast<double>(sight.by_rank.size());
  for (const Together& together : all) {
    if (together.position < since || together.position >= sight.position ||
        together.numel != series.tensor->numel)
      continue;
    for (const Made made : {Made::kSummed, Made::kAveraged}) {
      if (is_times(given, together, made == Made::kSummed ? 1 : 1 / size))
        return Treatment{&series,          made,           together.site,
                         together.version, together.alike, entry.settings};
    }
  }
  return std::nullopt;
}

std::optional<Treatment> treatment_of(const WatchedSeries& series,
                                      const std::vector<Together>& all) {
  std::optional<Treatment> first;
  std::size_t seen = 0;
  for (std::size_t at = 0; at < series.sights.size(); ++at) {
    const std::optional<Treatment> here = treatment_at(series, at, all);
    if (!here)
      continue;
    if (first && (first->made != here->made || first->site != here->site))
      return std::nullopt;
    if (!first)
      first = here;
    first->version = std::max(first->version, here->version);
    first->alike = first->alike && here->alike;
    ++seen;
  }
  return seen >= kSightsMin ? first : std::nullopt;
}

using Treatments = std::vector<Treatment>;

Treatments those(const Treatments& all, Made made) {
  Treatments some;
  std::copy_if(all.begin(), all.end(), std::back_inserter(some),
               [&](const Treatment& treatment) { return treatment.made == made; });
  return some;
}

std::string names(const Treatments& all) {
  return all.size() > 1
             ? fmt::format("{} and {} more", all.front().series->tensor->name, all.size() - 1)
             : all.front().series->tensor->name;
}

Finding finding_of(const Treatments& all, Severity severity) {
  const Treatment& first = all.front();
  const GroupView& group = *first.series->group;
  Finding finding{
      .code = Code::kUniformFactor, .severity = severity, .confidence = Confidence::kCertain};
  finding.group = group.label();
  finding.step = static_cast<std::int64_t>(first.series->sights.front().step);
  finding.at_ns = first.series->sights.front().at_ns;
  for (const Member& member : group.members)
    finding.affected.insert(member.rank);
  for (const Treatment& treatment : all) {
    if (finding.names.size() < kNamesMax)
      finding.names.push_back(treatment.series->tensor->name);
  }
  const Member& member = group.members.front();
  if (auto line = site_of(member.rank, member.process->sites[first.site].frames, "reduced"))
    finding.sites.push_back(std::move(*line));
  return finding;
}

/// By one line, untouched before it: the one was divided afterwards, the other was not.
bool is_by_one_line(const Treatments& summed, const Treatments& averaged) {
  std::set<std::pair<std::uint32_t, std::uint32_t>> lines;
  for (const Treatment& treatment : averaged)
    lines.emplace(treatment.site, treatment.version);
  return std::all_of(summed.begin(), summed.end(), [&](const Treatment& treatment) {
    return treatment.version != history::kNoVersion &&
           lines.count({treatment.site, treatment.version}) > 0;
  });
}

/// The factor reaches the steps: plain ones along the gradient, by the same settings, and those
/// that are averaged are of other samples on each rank.
bool goes_by_length(const Treatments& summed, const Treatments& averaged) {
  std::set<std::uint64_t> settings;
  for (const Treatment& treatment : averaged) {
    if (!treatment.alike)
      settings.insert(treatment.settings);
  }
  return std::all_of(summed.begin(), summed.end(), [&](const Treatment& treatment) {
    const WatchedTensor& tensor = *treatment.series->tensor;
    return tensor.loose && tensor.name.starts_with("SGD ") &&
           settings.count(treatment.settings) > 0;
  });
}

/// At most steps the ranks exchanged a number or two that is no gradient: how many samples they
/// have, perhaps, by which a loss is divided before backward.
bool may_count_samples(const Treatments& all) {
  constexpr std::uint64_t kNumbersMax = 2;
  const WatchedSeries& series = *all.front().series;
  const Member& member = series.group->members.front();
  const auto& calls = member.process->collectives;
  const auto small = std::count_if(calls.begin(), calls.end(), [&](const Collective& call) {
    return call.group == member.group && call.numel_in > 0 && call.numel_in <= kNumbersMax &&
           std::none_of(all.begin(), all.end(), [&](const Treatment& treatment) {
             return treatment.series->tensor->numel == call.numel_in;
           });
  });
  return static_cast<std::uint64_t>(small) * 2 >= series.sights.back().step;
}

std::optional<Finding> judged(const Treatments& all) {
  const Treatments summed = those(all, Made::kSummed), averaged = those(all, Made::kAveraged);
  if (summed.empty())
    return std::nullopt;
  const std::size_t size = summed.front().series->group->members.size();
  if (averaged.empty()) {  // Divided in place before, or not at all: the former counts.
    if (std::any_of(all.begin(), all.end(), [](const Treatment& t) { return t.version != 0; }))
      return std::nullopt;
    Finding finding = finding_of(summed, Severity::kNote);
    finding.headline = fmt::format(
        "gradients are the sum of what {} ranks hand in, nothing divides by {} afterwards", size,
        size);
    finding.tell(EvidenceKind::kValue, finding.affected,
                 "{}: each is the sum of what the ranks handed in", names(summed));
    finding.cause = "right where the loss is divided by the size of the batch of all ranks";
    return finding;
  }
  const bool one_line = is_by_one_line(summed, averaged);
  const bool counted = may_count_samples(all);
  const bool certain = one_line && !counted && goes_by_length(summed, averaged);
  Finding finding = finding_of(summed, certain ? Severity::kError : Severity::kNote);
  finding.headline = fmt::format(
      "of one optimizer the gradients of {} are the sum over {} ranks, and those of "
      "{} the mean",
      names(summed), size, names(averaged));
  finding.tell(EvidenceKind::kValue, finding.affected,
               "{} are what the ranks handed in, added; {} are that, divided by {}", names(summed),
               names(averaged), size);
  if (!one_line)
    finding.cause = "right where some are divided before they are handed in, and others after";
  else if (counted)
    finding.cause = "right where a loss is divided by the number of samples of all ranks";
  else if (!certain)
    finding.cause =
        "right where the optimizer does not ask how long they are, has other settings for the one "
        "than for the other, or where ranks have parts of one batch";
  return finding;
}

}  // namespace

Verdict GradientSums::check(const Job& job) const {
  Verdict verdict{.name = std::string(name()), .outcome = Outcome::kSkipped};
  if (!watch_coverage(job.run()).asked) {
    verdict.reason = "values were not watched";
    return verdict;
  }
  std::map<const GroupView*, std::vector<Together>> handed;
  std::map<std::pair<const GroupView*, std::uint32_t>, Treatments> optimizers;
  const std::vector<WatchedSeries> all = watched_series(job.groups());
  for (const WatchedSeries& series : all) {
    if (handed.count(series.group) == 0)
      handed.emplace(series.group, handed_in_together(*series.group));
    if (const auto treatment = treatment_of(series, handed.at(series.group)))
      optimizers[{series.group, series.optimizer}].push_back(*treatment);
  }
  std::size_t seen = 0;
  for (const auto& [optimizer, treatments] : optimizers) {
    seen += treatments.size();
    if (auto finding = judged(treatments))
      verdict.findings.push_back(std::move(*finding));
  }
  verdict.examined["gradients"] = seen;
  if (seen == 0) {
    verdict.reason = "no gradient was seen that the program reduced by itself";
    return verdict;
  }
  verdict.outcome = std::any_of(verdict.findings.begin(), verdict.findings.end(),
                                [](const Finding& f) { return f.severity == Severity::kError; })
                        ? Outcome::kFail
                        : Outcome::kPass;
  return verdict;
}

}  // namespace lockstep::checkers
