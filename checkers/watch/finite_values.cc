#include "checkers/watch/finite_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
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
  bool left{};     ///< It is finite again later, or the program went on with something else.
  bool was_set{};  ///< No gradient and nothing that was handed in was not finite.
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
  if (first.left) {  // Who tries a large learning rate, or looks for such values, goes back.
    finding.severity = Severity::kNote;
    finding.cause = "the program went back to finite values, or on with others";
  } else if (first.was_set) {
    finding.severity = Severity::kNote;
    finding.cause = "all gradients are finite: right where the program sets such values itself";
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

}  // namespace

Verdict FiniteValues::check(const Job& job) const {
  Verdict verdict{.name = std::string(name())};
  const WatchCoverage coverage = watch_coverage(job.run());
  const std::vector<WatchedSeries> all = watched_series(job.groups());
  if (!coverage.asked || all.empty())
    return coverage.asked ? verdict.because(incomplete(coverage.why_nothing))
                          : verdict.skip("values were not watched");
  std::vector<Broken> lasting, set, left;
  for (const WatchedSeries& series : all) {
    if (std::optional<Broken> here = broken(series)) {
      here->left =
          !series.sights.back().any_has(history::kValueNotFinite) || was_given_up(series, all);
      here->was_set = was_set_by_program(*here);
      (here->left ? left : here->was_set ? set : lasting).push_back(*here);
    }
  }
  verdict.examined["parameters"] = all.size();
  verdict.outcome = lasting.empty() ? Outcome::kPass : Outcome::kFail;
  for (const std::vector<Broken>* const found : {&lasting, &set, &left}) {
    if (!found->empty())
      verdict.findings.push_back(told(*found));
  }
  return verdict;
}

}  // namespace lockstep::checkers
