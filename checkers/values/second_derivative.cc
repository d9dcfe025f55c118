#include "checkers/values/second_derivative.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "checkers/values/reference_comparison.h"
#include "harness/model/coverage.h"
#include "harness/model/error_patterns.h"
#include "harness/model/failure.h"
#include "harness/model/group_view.h"
#include "harness/model/observed_values.h"

namespace lockstep::checkers {
namespace {

constexpr std::string_view kDetached = "penalty_detached";

bool is_penalised(const Run& run) { return run.plan.options.count("penalty") > 0; }

/// What the host adds about a failed backward: "autograd node NODE; layer LAYER".
struct Where {
  std::string node{}, layer{};
};

Where where(const std::string& text) {
  constexpr std::string_view kNode = "\nautograd node ";
  constexpr std::string_view kLayer = "; layer ";
  const std::size_t at = text.rfind(kNode);
  if (at == std::string::npos)
    return {};
  const std::string line = text.substr(at + kNode.size());
  const std::size_t layer = line.rfind(kLayer);
  if (layer == std::string::npos)
    return {line, ""};
  return {line.substr(0, layer), line.substr(layer + kLayer.size())};
}

/// The derivative that was asked for and is not there: by its exception.
std::optional<Finding> raised(const Run& run) {
  Finding finding;
  const Request* first = nullptr;
  for (const Request& request : run.requests) {
    if (request.role != Role::kRank || !request.rank || request.outcome != "failed" ||
        !says(request.text, Says::kNoDerivative))
      continue;
    finding.affected.insert(*request.rank);
    const std::uint64_t at = request.answered_ns.value_or(request.at_ns);
    if (first == nullptr || at < finding.at_ns) {
      first = &request;
      finding.at_ns = at;
    }
  }
  if (first == nullptr)
    return std::nullopt;
  finding.code = Code::kNoSecondDerivative;
  finding.confidence = Confidence::kCertain;
  const auto [node, layer] = where(first->text);
  if (!layer.empty())
    finding.names.push_back(layer);
  finding.headline = fmt::format("{} no second derivative: {}",
                                 layer.empty() ? "a layer has" : fmt::format("layer {} has", layer),
                                 first_line(first->text));
  if (!node.empty())
    finding.tell(EvidenceKind::kException, finding.affected, "the node of the autograd graph: {}",
                 node);
  finding.tell(EvidenceKind::kException, finding.affected, "raised by {}", words(finding.affected));
  return finding;
}

class Comparison {
 public:
  explicit Comparison(const Run& run)
      : subjects_(
            subjects_of(run, [](const Observation& seen) { return kind_of(seen.name) == "grad"; })),
        comparison_(run, "gradients") {}

  /// The first step in which every gradient is that without the penalty, and one should not be.
  std::optional<Finding> constant_penalty() {
    std::set<std::int64_t> steps;
    for (const auto& [key, subject] : subjects_)
      steps.insert(subject.step);
    for (const std::int64_t step : steps) {
      if (auto finding = constant_in(step))
        return finding;
    }
    return std::nullopt;
  }

  [[nodiscard]] std::uint64_t compared() const { return compared_; }

 private:
  std::optional<Finding> constant_in(std::int64_t step) {
    Finding finding;
    for (const auto& [key, subject] : subjects_) {
      if (subject.step != step)
        continue;
      const auto without = subject.mistakes.find(std::string(kDetached));
      if (without == subject.mistakes.end() || subject.right == nullptr)
        return std::nullopt;
      bool differs = false;
      for (const auto& [rank, observation] : subject.actual) {
        const auto detached = same(*observation, *without->second.front());
        const auto right = same(*observation, *subject.right);
        if (!detached || !right || !*detached)
          return std::nullopt;
        differs |= !*right;
        finding.at_ns = std::max(finding.at_ns, observation->at_ns);
        finding.affected.insert(rank);
      }
      if (differs)
        finding.names.emplace_back(tensor_name(subject.name));
    }
    if (finding.names.empty())
      return std::nullopt;
    finding.code = Code::kNoSecondDerivative;
    finding.step = step;
    finding.confidence = Confidence::kCertain;
    finding.headline = fmt::format(
        "the penalty does not train: every gradient of step {} is that of the loss without it",
        step);
    return finding;
  }

  /// None if a value cannot be read.
  std::optional<bool> same(const Observation& observation, const Observation& reference) {
    const std::optional<bool> answer = comparison_.same(observation, reference);
    compared_ += answer ? 1 : 0;
    return answer;
  }

  Subjects subjects_;
  ReferenceComparison comparison_;
  std::uint64_t compared_{};
};

}  // namespace

Verdict SecondDerivative::check(const Job& job) const {
  const Run& run = job.run();
  Verdict verdict{.name = std::string(name())};
  if (!is_penalised(run))
    return verdict.skip("no gradient penalty is asked for");
  if (auto finding = raised(run))
    return verdict.fail(std::move(*finding));
  Comparison comparison(run);
  if (auto finding = comparison.constant_penalty()) {
    verdict.fail(std::move(*finding));
  } else if (comparison.compared() == 0) {
    verdict.reason = "no gradient was compared with that of the loss without the penalty";
  } else if (!run.journal_complete) {
    verdict.because(why_open(run));
  } else {
    verdict.outcome = Outcome::kPass;
  }
  verdict.examined["gradients"] = comparison.compared();
  return verdict;
}

}  // namespace lockstep::checkers
