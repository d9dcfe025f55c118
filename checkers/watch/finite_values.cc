#include "checkers/watch/finite_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "checkers/watch/watch_coverage.h"
#include "harness/model/call_site.h"
#include "harness/model/coverage.h"
#include "harness/model/watched_series.h"

namespace lockstep::checkers {
namespace {

constexpr std::size_t kNamesMax = 8;

/// A parameter that was finite when it was watched before, and is not any more. One that never was
/// (a mask, infinite by design) is none.
struct Broken {
  const WatchedSeries* series{};
  std::size_t at{};
  std::string_view meant{};  ///< Why the program may mean it; empty: nothing says so.
  [[nodiscard]] const WatchedSight& sight() const { return series->sights[at]; }
};

std::optional<Broken> broken(const WatchedSeries& series) {
  constexpr std::uint32_t kNot = history::kValueNotFinite;
  for (std::size_t i = 1; i < series.sights.size(); ++i) {
    if (series.sights[i].any_has(kNot) && !series.sights[i - 1].any_has(kNot) &&
        series.sights[i].all_have(history::kValueSeen))
      return Broken{&series, i};
  }
  return std::nullopt;
}

/// Not what was stepped last: the program went on with other parameters, or another optimizer.
bool was_given_up(const WatchedSeries& series, const std::vector<WatchedSeries>& all) {
  constexpr std::ptrdiff_t kStepsMin = 4;
  const std::uint64_t last_ns = series.sights.back().at_ns;
  return std::any_of(all.begin(), all.end(), [&](const WatchedSeries& other) {
    const auto later = [&](const WatchedSight& sight) { return sight.at_ns > last_ns; };
    return !other.sights.empty() && !other.sights.back().any_has(history::kValueNotFinite) &&
           std::count_if(other.sights.begin(), other.sights.end(), later) >= kStepsMin;
  });
}

double rate_at(const WatchedSight& sight) { return sight.by_rank.begin()->second->learning_rate; }

/// Its rate grows by a factor, as where a program looks for the largest one that can be borne; who
/// warms up adds to it, and is half way there after half of the steps.
bool grows_by_a_factor(const Broken& broken) {
  constexpr double kBelow = 6;
  constexpr std::size_t kSightsMin = 4;
  const auto first = broken.series->sights.begin();
  const auto last = first + static_cast<std::ptrdiff_t>(broken.at);
  const bool grows = std::adjacent_find(first, last + 1, [](const auto& one, const auto& next) {
                       return !(rate_at(next) > rate_at(one));
                     }) == last + 1;
  if (broken.at + 1 < kSightsMin || !grows)
    return false;
  const auto share = [&](const WatchedSight& sight) {
    return static_cast<double>(sight.step - first->step) /
           static_cast<double>(last->step - first->step);
  };
  const auto middle = std::min_element(first, last, [&](const auto& a, const auto& b) {
    return std::abs(share(a) - 0.5) < std::abs(share(b) - 0.5);
  });
  return kBelow * (rate_at(*middle) - rate_at(*first)) <
         share(*middle) * (rate_at(*last) - rate_at(*first));
}

/// One of three or more rates that are tried, each with an optimizer and a module of its own, or
/// from the same values on; or one of those that the ranks try, each its own.
bool is_a_trial(const Broken& broken, const std::vector<WatchedSeries>& all) {
  constexpr std::size_t kTrials = 3;
  const WatchedSeries& own = *broken.series;
  const auto& by_rank = own.sights.front().by_rank;
  if (std::any_of(by_rank.begin(), by_rank.end(), [&](const auto& held) {
        return held.second->learning_rate > 0 &&
               held.second->learning_rate != by_rank.begin()->second->learning_rate;
      }))
    return true;
  const auto first = [](const WatchedSeries& series) -> const history::WatchEntry& {
    return *series.sights.front().by_rank.begin()->second;
  };
  std::set<double> rates{rate_at(own.sights.front())};
  for (const WatchedSeries& other : all) {
    if (other.group == own.group && other.tensor->numel == own.tensor->numel &&
        other.sights.back().at_ns < own.sights.front().at_ns &&
        (first(other).value.digest == first(own).value.digest ||
         (!own.tensor->loose && other.replica != own.replica)))
      rates.insert(rate_at(other.sights.front()));
  }
  return rates.size() >= kTrials;
}

RankSet ranks_with(const WatchedSight& sight, std::uint32_t flag) {
  RankSet ranks;
  for (const auto& [rank, entry] : sight.by_rank) {
    if ((entry->flags & flag) != 0)
      ranks.insert(rank);
  }
  return ranks;
}

/// What this rank handed to a reduction, the first time that it was not finite.
struct HandedIn {
  const Process* process{};
  Rank rank{};
  const WatchedNonFinite* what{};
};

/// Of the earliest place at which anybody did, who did there.
std::vector<HandedIn> first_handed_in(const WatchedSeries& series, std::uint64_t before_ns) {
  std::vector<HandedIn> first;
  for (const Member& member : series.group->members) {
    for (const WatchedNonFinite& what : member.process->watched->non_finite) {
      if (what.group != member.group || what.at_ns > before_ns)
        continue;
      if (!first.empty() && what.position < first.front().what->position)
        first.clear();
      if (first.empty() || what.position == first.front().what->position)
        first.push_back({member.process, member.rank, &what});
      break;
    }
  }
  return first;
}

/// Nothing went wrong in the arithmetic: who gives up one of several choices sets its weight to
/// -inf.
bool was_set_by_program(const Broken& broken) {
  const std::vector<WatchedSight>& sights = broken.series->sights;
  return std::none_of(sights.begin() + static_cast<std::ptrdiff_t>(broken.at) - 1, sights.end(),
                      [](const WatchedSight& sight) {
                        return sight.any_has(history::kGradientNotFinite) ||
                               !sight.all_have(history::kGradientSeen);
                      }) &&
         first_handed_in(*broken.series, kNeverNs).empty();
}

void tell_who_began(const Broken& first, Finding& finding) {
  const std::vector<HandedIn> began = first_handed_in(*first.series, first.sight().at_ns);
  if (began.empty())
    return;
  RankSet ranks;
  for (const HandedIn& handed : began)
    ranks.insert(handed.rank);
  finding.tell(EvidenceKind::kValue, ranks,
               "the first that was handed to a reduction: by {}, at collective {} of group {}",
               words(ranks), began.front().what->position, first.series->group->label());
  if (ranks.size() == first.series->group->members.size())
    return;
  finding.culprits = ranks;
  finding.cause =
      fmt::format("it came from {}, and the others got it through that reduction", words(ranks));
  const HandedIn& handed = began.front();
  if (handed.what->site != 0 && handed.what->site < handed.process->sites.size()) {
    if (auto site =
            site_of(handed.rank, handed.process->sites[handed.what->site].frames, "culprit"))
      finding.sites.push_back(std::move(*site));
  }
}

Finding told(const std::vector<Broken>& all) {
  const Broken& first = *std::min_element(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return a.sight().step < b.sight().step;
  });
  const RankSet holders = ranks_with(first.sight(), history::kValueNotFinite);
  Finding finding;
  finding.code = Code::kNotFinite;
  if (!first.meant.empty()) {
    finding.severity = Severity::kNote;
    finding.cause = first.meant;
  }
  finding.step = static_cast<std::int64_t>(first.sight().step);
  finding.at_ns = first.sight().at_ns;
  finding.group = first.series->group->label();
  finding.confidence = Confidence::kCertain;
  for (const Broken& each : all) {
    if (each.sight().step > first.sight().step)
      ++finding.consequences;
    else if (finding.names.size() < kNamesMax)
      finding.names.push_back(each.series->tensor->name);
  }
  const WatchedSight& before = first.series->sights[first.at - 1];
  finding.tell(EvidenceKind::kValue, holders, "{}: finite before step {}, not before step {}",
               first.series->tensor->name, before.step, first.sight().step);
  if (const RankSet given = ranks_with(before, history::kGradientNotFinite); !given.empty())
    finding.tell(EvidenceKind::kValue, given, "its gradient at step {} was not finite on {}",
                 before.step, words(given));
  tell_who_began(first, finding);
  if (finding.culprits.empty() && holders.size() < first.sight().by_rank.size())
    finding.culprits = holders;
  for (const Rank rank : holders) {
    if (!finding.culprits.contains(rank))
      finding.affected.insert(rank);
  }
  finding.headline = fmt::format(
      "step {}: {}{} is not finite on {}", *finding.step, finding.names.front(),
      all.size() > 1 ? fmt::format(" (and {} more)", all.size() - 1) : "", words(holders));
  return finding;
}

std::string_view what_is_meant(const Broken& broken, const std::vector<WatchedSeries>& all) {
  if (!broken.series->sights.back().any_has(history::kValueNotFinite) ||
      was_given_up(*broken.series, all))
    return "the program went back to finite values, or on with others";
  if (was_set_by_program(broken))
    return "all gradients are finite: right where the program sets such values itself";
  if (grows_by_a_factor(broken) || is_a_trial(broken, all))
    return "the program tries learning rates: one that is too large ends like this";
  return "";
}

}  // namespace

Verdict FiniteValues::check(const Job& job) const {
  Verdict verdict{.name = std::string(name())};
  const WatchCoverage coverage = watch_coverage(job.run());
  const std::vector<WatchedSeries> all = watched_series(job.groups());
  if (!coverage.asked || all.empty())
    return coverage.asked ? verdict.because(incomplete(coverage.why_nothing))
                          : verdict.skip("values were not watched");
  std::map<std::string_view, std::vector<Broken>> by_meaning;
  for (const WatchedSeries& series : all) {
    if (std::optional<Broken> here = broken(series)) {
      here->meant = what_is_meant(*here, all);
      by_meaning[here->meant].push_back(*here);
    }
  }
  verdict.examined["parameters"] = all.size();
  verdict.outcome = by_meaning.contains("") ? Outcome::kFail : Outcome::kPass;
  for (const auto& [meant, found] : by_meaning)
    verdict.findings.push_back(told(found));
  return verdict;
}

}  // namespace lockstep::checkers
