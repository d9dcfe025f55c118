#include "checkers/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <tuple>

#include "checkers/allowed.h"
#include "checkers/exit/descriptor_growth.h"
#include "checkers/exit/device_choice.h"
#include "checkers/exit/handled_exceptions.h"
#include "checkers/exit/leftovers.h"
#include "checkers/exit/rank_failed.h"
#include "checkers/exit/stuck_at_exit.h"
#include "checkers/hang/deadlock.h"
#include "checkers/hang/rendezvous.h"
#include "checkers/order/collective_order.h"
#include "checkers/order/loop_exit.h"
#include "checkers/order/unfinished_reduction.h"
#include "checkers/run/expected_marks.h"
#include "checkers/run/history_complete.h"
#include "checkers/run/refusals.h"
#include "checkers/sampling/sampler_contract.h"
#include "checkers/values/batch_statistics.h"
#include "checkers/values/bucket_layout.h"
#include "checkers/values/buffer_overwrite.h"
#include "checkers/values/gradient_presence.h"
#include "checkers/values/gradient_reference.h"
#include "checkers/values/loss_weighting.h"
#include "checkers/values/replica_equality.h"
#include "checkers/values/replica_memory.h"
#include "checkers/values/second_derivative.h"
#include "checkers/watch/collective_tensors.h"
#include "checkers/watch/finite_values.h"
#include "checkers/watch/gradient_sums.h"
#include "checkers/watch/loaded_data.h"
#include "checkers/watch/replica_drift.h"
#include "checkers/watch/sent_buffers.h"
#include "checkers/watch/wrapped_modules.h"
#include "harness/model/coverage.h"
#include "harness/model/group_view.h"

namespace lockstep::checkers {
namespace {

constexpr std::size_t kEvidenceMax = 24;

bool is_of(const Finding& finding, Family family) { return family_of(finding.code) == family; }

/// Of the order of things: the most specific explanation first. Of data: within a step a wrong
/// value at an earlier point of it is the source of later ones.
std::tuple<std::int64_t, std::int32_t, std::uint64_t> place_of(const Finding& finding) {
  const std::int32_t precedence = row_of(finding.code).precedence;
  if (is_of(finding, Family::kData))
    return {precedence < 0 ? -1 : finding.step.value_or(0), precedence, 0};
  return {0, precedence, finding.at_ns};
}

void sort_by_place(std::vector<Finding>& findings) {
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& a, const Finding& b) { return place_of(a) < place_of(b); });
}

/// The ranks that the end is about had already issued the call in which others disagree, or had
/// left the loop: the end came after.
bool entered(const Finding& end, const Finding& parting) {
  RankSet there = parting.affected;
  for (const Rank rank : parting.culprits)
    there.insert(rank);
  // Without a culprit, an end that only noticed a peer is a consequence of whatever else is proven.
  return end.culprits.empty() || std::any_of(end.culprits.begin(), end.culprits.end(),
                                             [&](Rank rank) { return there.contains(rank); });
}

const RankSet& concerned(const Finding& finding) {
  return finding.culprits.empty() ? finding.affected : finding.culprits;
}

void absorb(Finding& first, Finding& later) {
  // A wait further on in the same group is where the mismatch has led.
  const Family family = family_of(first.code);
  const bool led_there = explains(family, family_of(later.code));
  const bool same_call = !first.group.empty() && first.group == later.group &&
                         (first.seq == later.seq ||
                          (family == Family::kMismatch && led_there && later.seq >= first.seq));
  const bool explains_it = family == Family::kEnd && led_there;
  const bool left_the_loop_and_exited = family == Family::kLoopExit &&
                                        later.code == Code::kLeftEarly &&
                                        later.culprits == first.culprits;
  first.consequences += later.consequences;
  if (same_call || explains_it || left_the_loop_and_exited) {
    std::vector<Code> codes = later.also;
    codes.insert(codes.begin(), later.code);
    for (Code code : codes) {
      if (code != first.code &&
          std::find(first.also.begin(), first.also.end(), code) == first.also.end())
        first.also.push_back(code);
    }
    if (first.group.empty()) {
      first.group = later.group;
      first.op = later.op;
      first.seq = later.seq;
    }
    if (first.evidence.size() < kEvidenceMax)
      first.tell(EvidenceKind::kFinding, concerned(later), "{}", later.headline);
    for (const SiteRef& site : later.sites) {
      const bool known = std::any_of(first.sites.begin(), first.sites.end(), [&](const SiteRef& s) {
        return s.file == site.file && s.line == site.line && s.rank == site.rank;
      });
      if (!known && first.sites.size() < 4) {
        first.sites.push_back(site);
        if (!first.culprits.contains(site.rank))
          first.sites.back().role = "peer";
      }
    }
    for (const Rank rank : later.affected) {
      if (!first.culprits.contains(rank))
        first.affected.insert(rank);
    }
  } else {
    ++first.consequences;
    if (first.evidence.size() < kEvidenceMax)
      tell_later(later, first);
  }
}

/// Ends, mismatches and waits are one divergence: the first of them explains the rest.
std::vector<Finding> one_per_divergence(std::vector<Finding> findings, bool from_outside) {
  sort_by_place(findings);
  if (findings.empty())
    return findings;
  std::size_t first = 0;
  for (std::size_t i = 0; is_of(findings.front(), Family::kEnd) && i < findings.size(); ++i) {
    const bool parted =
        is_of(findings[i], Family::kMismatch) || is_of(findings[i], Family::kLoopExit);
    if (parted && entered(findings.front(), findings[i])) {
      first = i;
      break;
    }
  }
  // An end that only noticed a peer, and a stall that is proven: the stall explains it. It also
  // explains why the job was ended from outside.
  if (first == 0 && is_of(findings.front(), Family::kEnd) && findings.front().culprits.empty()) {
    for (std::size_t i = 1; i < findings.size() && first == 0; ++i) {
      if (from_outside || !findings[i].culprits.empty() ||
          findings[i].confidence == Confidence::kCertain)
        first = i;
    }
  }
  Finding primary = std::move(findings[first]);
  for (std::size_t i = 0; i < findings.size(); ++i) {
    if (i != first)
      absorb(primary, findings[i]);
  }
  std::vector<Finding> result;
  result.push_back(std::move(primary));
  return result;
}

std::vector<Finding> first_wrong_value(std::vector<Finding> findings) {
  sort_by_place(findings);
  for (std::size_t i = 1; i < findings.size(); ++i)
    absorb(findings.front(), findings[i]);
  if (findings.size() > 1)
    findings.resize(1);
  return findings;
}

std::vector<Finding> errors_among(const std::vector<Finding>& found, bool from_outside) {
  std::vector<Finding> of_order;
  std::vector<Finding> of_data;
  for (const Finding& finding : found) {
    if (finding.severity == Severity::kError)
      (is_of(finding, Family::kData) ? of_data : of_order).push_back(finding);
  }
  std::vector<Finding> order = one_per_divergence(std::move(of_order), from_outside);
  std::vector<Finding> data = first_wrong_value(std::move(of_data));
  if (order.empty() || data.empty()) {
    order.insert(order.end(), data.begin(), data.end());
    return order;
  }
  if (data.front().at_ns < order.front().at_ns)  // A wrong value explains no hang: both are told.
    return {data.front(), order.front()};
  absorb(order.front(), data.front());  // Values after a divergence are worth nothing.
  return order;
}

/// Warnings explain nothing and follow from nothing: they stand beside.
std::vector<Finding> combine(const std::vector<Verdict>& verdicts, bool from_outside) {
  std::vector<Finding> found;
  for (const Verdict& verdict : verdicts)
    found.insert(found.end(), verdict.findings.begin(), verdict.findings.end());
  std::vector<Finding> combined = errors_among(found, from_outside);
  std::copy_if(found.begin(), found.end(), std::back_inserter(combined),
               [](const Finding& finding) { return finding.severity != Severity::kError; });
  return combined;
}

void tell_what_is_unseen(const std::vector<Gap>& gaps, Finding& finding) {
  constexpr std::size_t kGapsMax = 3;
  for (const Gap& gap : gaps) {
    if (finding.unseen.size() < kGapsMax)
      finding.unseen.push_back(gap.what);
  }
}

Verdict checked(const Checker& checker, const Job& job) {
  const std::string name(checker.name());
  try {
    return checker.check(job);
  } catch (const std::exception& error) {
    return Verdict{.name = name}.because(lacking(
        Code::kCheckerFailed, fmt::format("the checker {} failed: {}", name, error.what())));
  }
}

}  // namespace

void tell_later(const Finding& later, Finding& first) {
  first.tell(EvidenceKind::kFinding, concerned(later), "after it, {}: {}", later.code,
             later.headline);
}

Checkers all_checkers() {
  Checkers checkers;
  checkers.push_back(std::make_unique<RankFailed>());
  checkers.push_back(std::make_unique<StuckAtExit>());
  checkers.push_back(std::make_unique<Leftovers>());
  checkers.push_back(std::make_unique<DescriptorGrowth>());
  checkers.push_back(std::make_unique<DeviceChoice>());
  checkers.push_back(std::make_unique<Rendezvous>());
  checkers.push_back(std::make_unique<LoopExit>());
  checkers.push_back(std::make_unique<UnfinishedReduction>());
  checkers.push_back(std::make_unique<CollectiveOrder>());
  checkers.push_back(std::make_unique<Deadlock>());
  checkers.push_back(std::make_unique<ReplicaEquality>());
  checkers.push_back(std::make_unique<BatchStatistics>());
  checkers.push_back(std::make_unique<BufferOverwrite>());
  checkers.push_back(std::make_unique<GradientPresence>());
  checkers.push_back(std::make_unique<GradientReference>());
  checkers.push_back(std::make_unique<SecondDerivative>());
  checkers.push_back(std::make_unique<LossWeighting>());
  checkers.push_back(std::make_unique<ReplicaMemory>());
  checkers.push_back(std::make_unique<BucketLayout>());
  checkers.push_back(std::make_unique<SamplerContract>());
  checkers.push_back(std::make_unique<Refusals>());
  checkers.push_back(std::make_unique<WrappedModules>());
  checkers.push_back(std::make_unique<ReplicaDrift>());
  checkers.push_back(std::make_unique<SentBuffers>());
  checkers.push_back(std::make_unique<GradientSums>());
  checkers.push_back(std::make_unique<CollectiveTensors>());
  checkers.push_back(std::make_unique<FiniteValues>());
  checkers.push_back(std::make_unique<LoadedData>());
  checkers.push_back(std::make_unique<ExpectedMarks>());
  checkers.push_back(std::make_unique<HistoryComplete>());
  return checkers;
}

Judgement judge(const Run& run, const Checkers& checkers) {
  Judgement judgement;
  const Job job(run);
  const std::vector<Allowed> allowed = allowed_in(run.plan);
  for (const auto& checker : checkers) {
    judgement.verdicts.push_back(checked(*checker, job));
    allow(allowed, judgement.verdicts.back());
  }
  judgement.findings = combine(judgement.verdicts, ended_from_outside_ns(run).has_value());
  for (Finding& finding : judgement.findings) {
    tell_what_is_handled(run, finding);
    if (!run.live)
      tell_what_is_unseen(job.gaps(), finding);
  }
  const auto any = [&](Outcome outcome) {
    return std::any_of(judgement.verdicts.begin(), judgement.verdicts.end(),
                       [&](const Verdict& verdict) { return verdict.outcome == outcome; });
  };
  const bool wrong =
      std::any_of(judgement.findings.begin(), judgement.findings.end(),
                  [](const Finding& finding) { return finding.severity == Severity::kError; });
  if (wrong)
    judgement.outcome = Outcome::kFail;
  else if (any(Outcome::kUndecided) || judgement.verdicts.empty())
    judgement.outcome = Outcome::kUndecided;
  else
    judgement.outcome = any(Outcome::kPass) ? Outcome::kPass : Outcome::kSkipped;
  return judgement;
}

}  // namespace lockstep::checkers
