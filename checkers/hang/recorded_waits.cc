#include "checkers/hang/recorded_waits.h"

#include <fmt/format.h>

#include <algorithm>

#include "checkers/hang/odd_calls.h"
#include "checkers/hang/recorded_blame.h"
#include "checkers/hang/recorded_graph.h"
#include "checkers/order/kindred_groups.h"
#include "harness/history/recorded.h"
#include "harness/model/call_site.h"
#include "harness/model/coverage.h"
#include "harness/model/matching.h"
#include "harness/model/ranks_by_text.h"

namespace lockstep::checkers {
namespace {

constexpr std::uint64_t kMovingNs = 1'000'000'000;     // Who waits no longer than that goes on.
constexpr std::uint64_t kStandingNs = 20'000'000'000;  // Who waits no longer than that may go on.
constexpr std::size_t kLinesMax = 8;

const char* plural(const RankSet& ranks, const char* one, const char* many) {
  return ranks.size() == 1 ? one : many;
}

class Explainer {
 public:
  Explainer(const Job& job, const RecordedGraph& graph)
      : run_(job.run()), graph_(graph), odd_(odd_message(job.groups(), graph.waits())) {}

  /// Nothing where only a mismatch explains it, or nothing.
  [[nodiscard]] std::optional<Finding> finding() const {
    const RankSet roots = graph_.roots();
    if (!roots.empty())
      return of_roots(roots);
    if (odd_)
      return of_odd_message();
    const RankSet passed = went_past(run_, graph_, /*supposed=*/false);
    if (!passed.empty())
      return of_passed(passed);
    const RankSet circle = graph_.circle();
    if (!circle.empty()) {
      const RankSet turned = common(went_past(run_, graph_, /*supposed=*/true), circle);
      return turned.empty() ? of_circle(circle) : of_passed(turned);
    }
    const std::vector<RecordedWait>& waits = graph_.waits();
    const auto any = [&](auto&& is_so) { return std::any_of(waits.begin(), waits.end(), is_so); };
    if (any([](const RecordedWait& wait) { return wait.differs; }))
      return std::nullopt;
    for (const RecordedWait& wait : waits) {
      if (const RankSet odd = odd_sizes(wait); !odd.empty() && timed_out(wait))
        return of_odd_size(wait, odd);
    }
    if (any([](const RecordedWait& wait) { return !wait.unseen.empty(); }))
      return of_unseen();
    return of_all_inside();
  }

 private:
  /// What all devices are in, rather than what waits for them in their queues.
  [[nodiscard]] std::optional<Finding> of_all_inside() const {
    const RecordedWait* first = nullptr;
    for (const RecordedWait& wait : graph_.waits()) {
      if (!timed_out(wait) || !wait.absent.empty())
        continue;
      const bool in_it = wait.running == wait.entered;
      if (first == nullptr || (in_it && first->running != first->entered))
        first = &wait;
    }
    if (first == nullptr)
      return std::nullopt;
    return finished(Code::kEveryoneInside, *first, {},
                    fmt::format("all members have entered {}, and it did not finish in its limit",
                                label(*first)));
  }

  [[nodiscard]] std::optional<Finding> of_odd_size(const RecordedWait& wait,
                                                   const RankSet& odd) const {
    const Member& suspect = *wait.group->member(*odd.begin());
    const RankSet others = wait.entered.minus(odd);
    const Member& other = *wait.group->member(*others.begin());
    return finished(
        Code::kDifferentSize, wait, odd,
        fmt::format("{} hands in and receives {} elements in {}, and {} {} each: it did not finish "
                    "in its limit",
                    words(odd), suspect.at(wait.seq)->numel_in, label(wait), words(others),
                    other.at(wait.seq)->numel_in));
  }

  [[nodiscard]] std::optional<Finding> of_odd_message() const {
    const RecordedWait& wait = *odd_->wait;
    const std::string who = words(RankSet{odd_->rank}), message = wait.group->label(*odd_->call);
    Finding finding = finished(
        Code::kP2pUnmatched, wait, RankSet{odd_->rank},
        odd_->call == wait.call
            ? fmt::format("{} waits in {}, and the two exchange no such messages else", who,
                          message)
            : fmt::format("{} went through {}, and the two exchange no such messages else; {} "
                          "waits in {}",
                          who, message, words(wait.waiting), label(wait)));
    finding.tell(EvidenceKind::kCall, {},
                 "nor do the ranks at these places in {} other groups of {}", odd_->kindred,
                 kind_of_group(wait.group->name));
    return finding;
  }

  [[nodiscard]] static std::string label(const RecordedWait& wait) {
    return wait.group->label(*wait.call);
  }

  [[nodiscard]] static bool owes(const RecordedWait& wait, const RankSet& ranks) {
    return std::any_of(wait.owing().begin(), wait.owing().end(),
                       [&](Rank rank) { return ranks.contains(rank); });
  }

  /// The call in which most wait for them.
  [[nodiscard]] const RecordedWait& first_of(const RankSet& ranks) const {
    const RecordedWait* best = nullptr;
    for (const RecordedWait& wait : graph_.waits()) {
      const auto weight = [&](const RecordedWait& of) {
        return std::tuple(!of.differs, common(of.owing(), ranks).size() == of.owing().size(),
                          of.waiting.size());
      };
      if (owes(wait, ranks) && (best == nullptr || weight(wait) > weight(*best)))
        best = &wait;
    }
    return best == nullptr ? graph_.waits().front() : *best;
  }

  [[nodiscard]] std::optional<Finding> of_roots(const RankSet& roots) const {
    RankSet culprits = convicted(graph_, roots);
    if (culprits.empty() && !odd_ && is_only_idle(run_, graph_, roots))
      culprits = roots;
    const RecordedWait& wait = first_of(culprits.empty() ? roots : culprits);
    if (wait.differs)
      return std::nullopt;
    const RankSet absent = common(wait.owing(), roots);
    if (wait.absent.empty())
      return finished(
          Code::kEveryoneInside, wait, culprits,
          fmt::format("all members have entered {}, and the {} of {} {} not {} it; {} {} in it",
                      label(wait), absent.size() == 1 ? "device" : "devices", words(absent),
                      plural(absent, "has", "have"), device_word(wait),
                      words(wait.waiting.minus(absent)),
                      plural(wait.waiting.minus(absent), "waits", "wait")));
    // Most have not come, and wait for nobody: the few made a call that the others did not.
    if (culprits.empty() && is_few(wait, wait.entered) && wait.absent == absent &&
        wait.unseen.empty())
      return finished(Code::kExtraCall, wait, wait.entered,
                      fmt::format("{} issued {}, which {} did not issue", words(wait.entered),
                                  label(wait), words(wait.absent)));
    if (wait.to_one)
      return finished(Code::kP2pUnmatched, wait, culprits,
                      fmt::format("{} waits in {}, and {} has not issued the other end",
                                  words(wait.waiting), label(wait), words(absent)));
    return finished(Code::kAbsentRank, wait, culprits,
                    fmt::format("{} {} not entered {}; {} {} in it", words(absent),
                                plural(absent, "has", "have"), label(wait), words(wait.waiting),
                                plural(wait.waiting, "waits", "wait")));
  }

  [[nodiscard]] std::optional<Finding> of_passed(const RankSet& passed) const {
    const RecordedWait& wait = first_of(passed);
    const RankSet owing = common(wait.owing(), passed);
    return finished(Code::kWaitCycle, wait, passed,
                    fmt::format("{} went past {} in the order of calls that all others have; {} {} "
                                "in it",
                                words(owing), label(wait), words(wait.waiting.minus(owing)),
                                plural(wait.waiting.minus(owing), "waits", "wait")));
  }

  [[nodiscard]] static const char* device_word(const RecordedWait& wait) {
    return wait.waiting == wait.behind ? "finished" : "begun";
  }

  [[nodiscard]] std::optional<Finding> of_circle(const RankSet& circle) const {
    for (const RecordedWait& wait : graph_.waits()) {
      if (wait.differs)
        return std::nullopt;
    }
    const RankSet culprits = unexplained_in(graph_, circle);
    return finished(
        Code::kWaitCycle, first_of(circle), culprits,
        fmt::format("{} wait for each other in a circle: {}", words(circle), places_of(circle)));
  }

  [[nodiscard]] Finding of_unseen() const {
    RankSet unseen;
    const RecordedWait* first = nullptr;
    for (const RecordedWait& wait : graph_.waits()) {
      for (const Rank rank : wait.unseen)
        unseen.insert(rank);
      if (!wait.unseen.empty() && (first == nullptr || wait.running.size() > first->running.size()))
        first = &wait;
    }
    return finished(
        first->to_one ? Code::kP2pUnmatched : Code::kAbsentRank, *first, {},
        fmt::format("{} {} in {}, and of {}, which {} to it, there is no dump",
                    words(first->waiting), plural(first->waiting, "waits", "wait"), label(*first),
                    words(first->unseen), plural(first->unseen, "belongs", "belong")));
  }

  [[nodiscard]] bool timed_out(const RecordedWait& wait) const {
    if (wait.given_up)
      return true;
    return wait.call->timeout_ms > 0 && graph_.longest_ns() &&
           *graph_.longest_ns() / 1'000'000 >= static_cast<std::uint64_t>(wait.call->timeout_ms);
  }

  [[nodiscard]] std::string places_of(const RankSet& ranks) const {
    RanksByText places;
    for (const RecordedWait& wait : graph_.waits()) {
      for (const Rank rank : common(wait.waiting, ranks))
        add_rank(places, label(wait), rank);
    }
    std::string text;
    for (std::size_t i = 0; i < places.size() && i < 4; ++i)
      text +=
          fmt::format("{}{} in {}", i == 0 ? "" : ", ", words(places[i].second), places[i].first);
    return text + (places.size() > 4 ? ", ..." : "");
  }

  [[nodiscard]] Finding finished(Code code, const RecordedWait& wait, const RankSet& culprits,
                                 std::string headline) const {
    Finding finding;
    finding.code = code;
    finding.headline = std::move(headline);
    finding.culprits = culprits;
    finding.confidence = culprits.empty() ? Confidence::kUnknown : Confidence::kLikely;
    finding.group = wait.group->label();
    finding.op = std::string(history::name_of(wait.call->op));
    finding.seq = wait.seq;
    finding.at_ns = wait.call->issued_ns;
    for (const RecordedWait& other : graph_.waits()) {
      for (const Rank rank : other.waiting) {
        if (!culprits.contains(rank))
          finding.affected.insert(rank);
      }
    }
    finding.consequences = graph_.waits().size() - 1;
    add_evidence(wait, finding);
    add_sites(wait, finding);
    return finding;
  }

  /// What it issued last, whatever the group.
  [[nodiscard]] const Collective* last_call(Rank rank) const {
    const Process* const process = run_.process_of(rank);
    const Collective* last = nullptr;
    for (std::size_t i = 0; process != nullptr && i < process->collectives.size(); ++i) {
      if (last == nullptr || process->collectives[i].record > last->record)
        last = &process->collectives[i];
    }
    return last;
  }

  void add_evidence(const RecordedWait& first, Finding& finding) const {
    std::vector<const RecordedWait*> waits{&first};
    for (const RecordedWait& wait : graph_.waits()) {
      if (&wait != &first)
        waits.push_back(&wait);
    }
    for (std::size_t i = 0; i < waits.size() && i < kLinesMax / 2; ++i) {
      const RecordedWait& wait = *waits[i];
      const std::string for_whom =
          wait.owing().empty() ? "" : fmt::format(", for {}", words(wait.owing()));
      finding.tell_of(EvidenceKind::kWait, wait.waiting, "in {}{}", label(wait), for_whom)
          .about(wait.group->place(*wait.call));
    }
    for (const Rank rank : finding.culprits) {
      const Collective* const last = last_call(rank);
      if (last == nullptr || finding.evidence.size() >= kLinesMax)
        break;
      finding
          .tell_of(EvidenceKind::kCall, {rank}, "its last call is {} {}#{}{}",
                   history::name_of(last->op), run_.process_of(rank)->groups[last->group].name,
                   last->seq, last->completed_ns ? ", done" : "")
          .about(place_of(*run_.process_of(rank), *last));
    }
    if (const auto waited = graph_.longest_ns())
      finding.tell(EvidenceKind::kWait, {},
                   "the longest wait was {:.1f} s when its dump was written",
                   static_cast<double>(*waited) / 1e9);
    finding.unseen.emplace_back("what a rank does outside its calls: dumps do not tell");
  }

  void add_sites(const RecordedWait& wait, Finding& finding) const {
    for (const Rank rank : finding.culprits) {
      const Collective* const last = last_call(rank);
      if (last == nullptr)
        continue;
      if (auto site = site_of(*run_.process_of(rank), *last, "culprit")) {
        finding.sites.push_back(*site);
        break;
      }
    }
    const Process* const waiter = run_.process_of(*wait.waiting.begin());
    if (auto site = site_of(*waiter, *wait.call, "peer"))
      finding.sites.push_back(*site);
  }

  const Run& run_;
  const RecordedGraph& graph_;
  std::optional<OddMessage> odd_;
};

bool is_moving(const RecordedGraph& graph) {
  const std::optional<std::uint64_t> longest = graph.longest_ns();
  return longest &&
         (*longest < kMovingNs || (*longest < kStandingNs && graph.quiet_ns() < kMovingNs));
}

/// They may have waited for somebody who is slow: none of them to its limit.
bool may_go_on(const RecordedGraph& graph) {
  const std::optional<std::uint64_t> longest = graph.longest_ns();
  return longest && *longest < kStandingNs &&
         std::none_of(graph.waits().begin(), graph.waits().end(),
                      [](const RecordedWait& wait) { return wait.given_up; });
}

}  // namespace

Verdict RecordedWaits::check(const Job& job) const {
  Verdict verdict{.name = std::string(name())};
  const RecordedGraph graph(job.run(), job.groups());
  verdict.examined["processes"] = job.run().processes.size();
  verdict.examined["calls that stand still"] = graph.waits().size();
  if (job.groups().empty()) {
    verdict.reason = "the dumps have no call";
  } else if (graph.waits().empty() || is_moving(graph)) {
    verdict.outcome = Outcome::kPass;  // Or the job went on while they were written.
  } else if (auto finding = Explainer(job, graph).finding()) {
    if (may_go_on(graph)) {
      return verdict.because(incomplete(
          fmt::format("{}, {:.1f} s when the dumps were written: whether they go on does not show",
                      finding->headline, static_cast<double>(*graph.longest_ns()) / 1e9)));
    }
    verdict.outcome = Outcome::kFail;
    verdict.findings.push_back(std::move(*finding));
  } else {
    const RecordedWait& wait = graph.waits().front();
    verdict.because(incomplete(fmt::format(
        "{} in {}, all that have a dump have entered it, and whether it goes on does not show",
        words(wait.waiting) + plural(wait.waiting, " waits", " wait"),
        wait.group->label(*wait.call))));
  }
  return verdict;
}

}  // namespace lockstep::checkers
