#include "checkers/values/replica_equality.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "checkers/blame/attribution.h"
#include "checkers/values/references.h"
#include "harness/model/batch_plan.h"
#include "harness/model/group_view.h"
#include "harness/model/observed_values.h"

namespace lockstep::checkers {
namespace {

constexpr std::size_t kNamesMax = 16;

/// Who must hold what at one sighting.
struct Rule {
  Code code{};
  std::optional<Rank> decides{};  ///< Whose value it is; none: all hold the same.
  bool own{};                     ///< Each rank holds what it held before.
};

/// Of what ranks keep to themselves. An optimizer may have moved a parameter.
std::optional<Rule> own_rule_of(const Sighting& sighting) {
  if (is_phase(sighting.phase, "initial"))
    return Rule{.code = Code::kInitialValue, .own = true};
  if (kind_of(sighting.name) == "buffer" && is_phase(sighting.phase, "forward_entry"))
    return Rule{.code = Code::kBufferDiffers, .own = true};
  return std::nullopt;
}

std::optional<Rule> rule_of(const Plan& plan, const Sighting& sighting,
                            const std::string& buffers) {
  const std::string_view kind = kind_of(sighting.name);
  const bool initial = is_phase(sighting.phase, "initial");
  if (is_phase(sighting.phase, "before"))
    return std::nullopt;  // Legally different.
  if (is_ignored(plan, sighting.name))
    return own_rule_of(sighting);
  const bool unsynced = is_phase(sighting.phase, "forward_entry_unsynced");
  if (kind == "buffer" && (unsynced || (buffers == "local" && is_phase(sighting.phase, "joined"))))
    return Rule{.code = Code::kBufferDiffers, .own = true};
  if (kind == "param")
    return initial ? Rule{Code::kInitialValue, Rank{0}} : Rule{Code::kParameterDiffers};
  if (kind == "optimizer")
    return Rule{Code::kOptimizerStateDiffers};
  if (kind != "buffer")
    return std::nullopt;
  if (initial && (buffers == "rank0" || buffers == "synchronised"))
    return Rule{Code::kInitialValue, Rank{0}};
  if (buffers != "rank0" && buffers != "synchronised")
    return std::nullopt;
  if (is_phase(sighting.phase, "forward_entry") && buffers == "rank0")
    return Rule{Code::kBufferDiffers, buffer_source(plan, sighting.step)};
  if (is_phase(sighting.phase, "forward_entry") || is_phase(sighting.phase, "joined"))
    return Rule{Code::kBufferDiffers};
  return std::nullopt;
}

/// What a rank held just before. Nothing of rank 0's may change in between, so at the next sighting
/// it still holds it, unless somebody else's value was written over it; another rank's own value
/// gives way to rank 0's.
class Sources {
 public:
  explicit Sources(const std::vector<Sighting>& all) {
    for (const Sighting& sighting : all) {
      if (sighting.occasion == 0)
        by_place_[{sighting.step, sighting.phase, sighting.name}] = &sighting;
      else
        repeated_.insert({sighting.step, sighting.name});
    }
  }

  /// Null where it was not observed, or where the step has micro-batches whose forwards lie in
  /// between.
  [[nodiscard]] const Observation* before(const Plan& plan, const Sighting& sighting,
                                          Rank rank) const {
    if (is_phase(sighting.phase, "joined"))
      return after_last(plan, sighting.name, rank);
    if (repeated_.count({sighting.step, sighting.name}) > 0)
      return nullptr;
    const std::int64_t step = sighting.step;
    const std::string& name = sighting.name;
    if (is_phase(sighting.phase, "initial"))
      return of(rank, step, "before", name);
    const std::int32_t forward = phase_index(sighting.phase);
    if (forward > 0)
      return of(rank, step, fmt::format("after_forward/{}", forward - 1), name);
    if (const Observation* source = of(rank, step, "initial", name); source != nullptr)
      return source;
    return of(rank, step - 1, "after_backward", name);
  }

  /// What the ranks that ran longest held after their last step; by the contract of a join one of
  /// these is everybody's then. Empty where that is not known.
  [[nodiscard]] std::vector<const Observation*> of_longest(const Plan& plan,
                                                           const Sighting& sighting) const {
    std::vector<const Observation*> held;
    if (plan.batches.empty() || !is_phase(sighting.phase, "joined"))
      return held;
    const std::int64_t last = *std::max_element(plan.batches.begin(), plan.batches.end()) - 1;
    for (const Rank rank : last < 0 ? RankSet{} : taking_part(plan, last)) {
      const Observation* value = of(rank, last, "after_backward", sighting.name);
      if (value == nullptr)
        return {};
      held.push_back(value);
    }
    return held;
  }

 private:
  /// After its last batch, or as it began where it has none.
  [[nodiscard]] const Observation* after_last(const Plan& plan, const std::string& name,
                                              Rank rank) const {
    const auto index = static_cast<std::size_t>(rank.value);
    const std::int64_t batches = index < plan.batches.size() ? plan.batches[index] : -1;
    return batches == 0 ? of(rank, 0, "initial", name)
                        : of(rank, batches - 1, "after_backward", name);
  }

  [[nodiscard]] const Observation* of(Rank rank, std::int64_t step, const std::string& phase,
                                      const std::string& name) const {
    const auto place = by_place_.find({step, phase, name});
    if (place == by_place_.end())
      return nullptr;
    const auto held = place->second->by_rank.find(rank);
    return held == place->second->by_rank.end() ? nullptr : held->second;
  }

  std::map<std::tuple<std::int64_t, std::string, std::string>, const Sighting*> by_place_{};
  std::set<std::pair<std::int64_t, std::string>> repeated_{};
};

/// Ranks that do not hold the value they must; `undecided` if who decides it was not seen.
struct Comparison {
  RankSet differ{};
  const Observation* expected{};
  bool undecided{};
  bool stale{};        ///< All hold one value, and it is of none of those that decide.
  bool overwritten{};  ///< Rank 0 itself no longer holds its own value.
  bool received{};  ///< Another rank gave up a value of its own for the expected one: it was sent.
};

Comparison compare_own(const Plan& plan, const Sighting& sighting, const Sources& sources) {
  Comparison result;
  for (const auto& [rank, observation] : sighting.by_rank) {
    const Observation* before = sources.before(plan, sighting, rank);
    if (before == nullptr || identical(*before, *observation))
      continue;
    result.differ.insert(rank);
    result.expected = before;
  }
  return result;
}

Comparison compare(const Plan& plan, const Sighting& sighting, const Rule& rule,
                   const Sources& sources) {
  if (rule.own)
    return compare_own(plan, sighting, sources);
  Comparison result;
  if (rule.decides) {
    const auto source = sighting.by_rank.find(*rule.decides);
    if (source == sighting.by_rank.end()) {
      result.undecided = true;
      return result;
    }
    result.expected = source->second;
    if (const Observation* before = sources.before(plan, sighting, *rule.decides);
        before != nullptr && !identical(*before, *source->second)) {
      result.expected = before;
      result.overwritten = true;
    }
  } else {
    // The value that most ranks hold; which ranks are to blame is decided elsewhere.
    std::size_t most = 0;
    for (const auto& [rank, candidate] : sighting.by_rank) {
      const Observation& value = *candidate;
      const auto holders = static_cast<std::size_t>(
          std::count_if(sighting.by_rank.begin(), sighting.by_rank.end(),
                        [&](const auto& other) { return identical(*other.second, value); }));
      if (holders > most) {
        most = holders;
        result.expected = candidate;
      }
    }
  }
  for (const auto& [rank, observation] : sighting.by_rank) {
    const bool same = identical(*observation, *result.expected);
    if (!same)
      result.differ.insert(rank);
    const Observation* own = same && rule.decides && rank != *rule.decides
                                 ? sources.before(plan, sighting, rank)
                                 : nullptr;
    result.received |= own != nullptr && !identical(*own, *result.expected);
  }
  return result;
}

/// Of ranks that hold one value: is it that of a rank that ran longest?
Comparison compare_with_longest(const std::vector<const Observation*>& longest,
                                const Sighting& sighting) {
  Comparison result;
  const Observation& held = *sighting.by_rank.begin()->second;
  if (longest.empty() || std::any_of(longest.begin(), longest.end(), [&](const Observation* value) {
        return identical(*value, held);
      }))
    return result;
  result.expected = longest.front();
  result.stale = true;
  for (const auto& [rank, observation] : sighting.by_rank)
    result.differ.insert(rank);
  return result;
}

/// Those that have a batch for the step, and all in the end.
RankSet holders(const Run& run, const Sighting& sighting) {
  const bool end = is_phase(sighting.phase, "joined") || is_phase(sighting.phase, "refused");
  return end ? RankSet::all(run.plan.world_size) : taking_part(run.plan, sighting.step);
}

class Collector {
 public:
  explicit Collector(const Run& run) : run_(run) {}

  void add(const Sighting& sighting, const Rule& rule, const Comparison& comparison) {
    Finding* finding = find(rule.code);
    if (finding == nullptr) {
      findings_.push_back(start(sighting, rule));
      if (comparison.stale || rule.own)
        what_[rule.code] = "is not " + whose(rule, comparison);
      finding = &findings_.back();
      if (rule.decides && comparison.overwritten)
        finding->tell(EvidenceKind::kValue, {*rule.decides},
                      "rank {} itself entered with another value of {} than it had before",
                      rule.decides->value, tensor_name(sighting.name));
    } else if (finding->step != sighting.step || place_.at(rule.code) != sighting.phase) {
      ++finding->consequences;
      return;
    }
    const std::string name(tensor_name(sighting.name));
    if (finding->names.size() < kNamesMax)
      finding->names.push_back(name);
    if (!rule.decides || comparison.received)
      blamable_.insert(rule.code);
    for (const Rank rank : comparison.differ)
      differ_[rule.code].insert(rank);
    among_[rule.code] = holders(run_, sighting);
    const auto difference = largest_difference(run_, *comparison.expected,
                                               *sighting.by_rank.at(*comparison.differ.begin()));
    if (finding->evidence.size() < kNamesMax)
      finding->tell(EvidenceKind::kValue, comparison.differ, "{}: {} differ{} from {}{}", name,
                    words(comparison.differ), comparison.differ.size() == 1 ? "s" : "",
                    whose(rule, comparison),
                    difference ? fmt::format(", by up to {:.6g} on rank {}", *difference,
                                             comparison.differ.begin()->value)
                               : "");
  }

  std::vector<Finding> finish() {
    for (Finding& finding : findings_) {
      const RankSet& differ = differ_[finding.code];
      const RankSet everyone = ranks_of(run_);
      const std::size_t among = std::min(everyone.size(), among_[finding.code].size());
      // A minority against a strict majority of three or more; else nobody is convicted. Ranks that
      // merely happened to hold rank 0's value are no majority: nobody may have been sent it.
      const bool minority = is_minority(differ.size(), among);
      if (minority && run_.journal_complete && blamable_.count(finding.code) > 0) {
        finding.culprits = differ;
        finding.affected = everyone.minus(differ);
        finding.confidence = Confidence::kLikely;
      } else {
        // Where nobody is at fault more than another, all are concerned.
        const bool all_alike =
            finding.code == Code::kBufferDiffers || finding.code == Code::kInitialValue;
        finding.affected = all_alike && blamable_.count(finding.code) == 0 ? everyone : differ;
      }
      const std::string which =
          finding.names.size() == 1
              ? finding.names.front()
              : fmt::format("{} and {} more", finding.names.front(), finding.names.size() - 1);
      finding.headline = fmt::format("{} {} on {}", which, what_[finding.code], words(differ));
    }
    return std::move(findings_);
  }

 private:
  static std::string whose(const Rule& rule, const Comparison& comparison) {
    if (rule.own)
      return "what each rank held before, although it is to be kept";
    if (comparison.stale)
      return "what the ranks that ran longest held after their last step";
    if (!rule.decides)
      return "the other ranks";
    return comparison.overwritten ? fmt::format("what rank {} had before", rule.decides->value)
                                  : fmt::format("rank {}'s", rule.decides->value);
  }

  Finding* find(Code code) {
    for (Finding& finding : findings_) {
      if (finding.code == code)
        return &finding;
    }
    return nullptr;
  }

  Finding start(const Sighting& sighting, const Rule& rule) {
    Finding finding;
    finding.code = rule.code;
    finding.step = sighting.step;
    for (const auto& [rank, observation] : sighting.by_rank)
      finding.at_ns = std::max(finding.at_ns, observation->at_ns);
    place_[rule.code] = sighting.phase;
    const std::string when = fmt::format("at {} of step {}", sighting.phase, sighting.step);
    if (rule.code == Code::kInitialValue)
      what_[rule.code] = "is not rank 0's right after wrapping";
    else if (rule.code == Code::kBufferDiffers)
      what_[rule.code] = rule.decides
                             ? fmt::format("is not rank {}'s {}", rule.decides->value, when)
                             : fmt::format("is not the same on all ranks {}", when);
    else
      what_[rule.code] = fmt::format("differs {}", when);
    return finding;
  }

  const Run& run_;
  std::vector<Finding> findings_{};
  std::map<Code, RankSet> differ_{}, among_{};
  std::set<Code> blamable_{};  ///< Codes whose value was, provenly, sent to some rank.
  std::map<Code, std::string> what_{}, place_{};
};

/// By every rank that took part.
bool seen_everywhere(const Run& run, const Sighting& sighting) {
  const RankSet ranks = holders(run, sighting);
  return std::all_of(ranks.begin(), ranks.end(),
                     [&](Rank rank) { return sighting.by_rank.count(rank) > 0; });
}

}  // namespace

Verdict ReplicaEquality::check(const Job& job) const {
  const Run& run = job.run();
  Verdict verdict{.name = std::string(name())};
  const std::string buffers = run.plan.declared("buffers");
  const std::vector<Sighting> all = sightings(run, {"param", "buffer", "optimizer"});
  const Sources sources(all);
  Collector collector(run);
  std::uint64_t compared = 0;
  std::string undecided;
  for (const Sighting& sighting : all) {
    const auto rule = rule_of(run.plan, sighting, buffers);
    if (!rule)
      continue;
    ++compared;
    const bool complete = seen_everywhere(run, sighting);
    if (sighting.occasion > 0 && !(run.journal_complete && complete)) {
      undecided = fmt::format("which occasions of {} in step {} belong together is not known",
                              sighting.name, sighting.step);
      continue;
    }
    Comparison comparison = compare(run.plan, sighting, *rule, sources);
    if (comparison.differ.empty() && !rule->own)
      comparison = compare_with_longest(sources.of_longest(run.plan, sighting), sighting);
    if (!comparison.differ.empty())
      collector.add(sighting, *rule, comparison);
    if (undecided.empty() && (comparison.undecided || !complete))
      undecided = fmt::format("{} at {} of step {} was not observed on every rank", sighting.name,
                              sighting.phase, sighting.step);
  }
  verdict.examined["tensors"] = compared;
  verdict.findings = collector.finish();
  if (!verdict.findings.empty()) {
    verdict.outcome = Outcome::kFail;
  } else if (compared == 0) {
    // Only a scenario observes values; of a program on its own none are expected.
    const bool expected = all.empty() && !run.plan.scenario.empty();
    verdict.outcome = expected ? Outcome::kUndecided : Outcome::kSkipped;
    verdict.reason = all.empty() ? "no value was observed"
                                 : "the declared contract lets every observed value differ";
  } else if (!undecided.empty()) {
    verdict.reason = undecided;
  } else {
    verdict.outcome = Outcome::kPass;
  }
  return verdict;
}

}  // namespace lockstep::checkers
