#include "checkers/hang/recorded_waits.h"

#include <fmt/format.h>

#include <algorithm>

#include "checkers/hang/issue_order.h"
#include "checkers/hang/recorded_graph.h"
#include "harness/history/recorded.h"
#include "harness/model/call_site.h"
#include "harness/model/coverage.h"
#include "harness/model/matching.h"
#include "harness/model/ranks_by_text.h"

namespace lockstep::checkers {
namespace {

constexpr std::uint64_t kMovingNs = 1'000'000'000;  // Who waits no longer than that may go on.
constexpr std::size_t kLinesMax = 8;

const char* plural(const RankSet& ranks, const char* one, const char* many) {
  return ranks.size() == 1 ? one : many;
}

class Explainer {
 public:
  Explainer(const Run& run, const RecordedGraph& graph) : run_(run), graph_(graph) {}

  /// Nothing where only a mismatch explains it, or nothing.
  [[nodiscard]] std::optional<Finding> finding() const {
    const RankSet roots = graph_.roots();
    if (!roots.empty())
      return of_roots(roots);
    const RankSet passed = went_past();
    if (!passed.empty())
      return of_passed(passed);
    const RankSet circle = graph_.circle();
    if (!circle.empty())
      return of_circle(circle);
    for (const RecordedWait& wait : graph_.waits()) {
      if (!wait.unseen.empty())
        return of_unseen();
    }
    for (const RecordedWait& wait : graph_.waits()) {
      if (timed_out(wait) && !wait.differs && wait.absent.empty())
        return finished(Code::kEveryoneInside, wait, {},
                        fmt::format("all members have entered {}, and it did not finish in its "
                                    "limit",
                                    label(wait)));
    }
    return std::nullopt;
  }

 private:
  [[nodiscard]] static std::string label(const RecordedWait& wait) {
    return wait.group->label(*wait.call);
  }

  [[nodiscard]] static bool owes(const RecordedWait& wait, const RankSet& ranks) {
    return std::any_of(wait.owing().begin(), wait.owing().end(),
                       [&](Rank rank) { return ranks.contains(rank); });
  }

  [[nodiscard]] static std::size_t size_of(const RecordedWait& wait) {
    return wait.to_one ? 2 : static_cast<std::size_t>(std::max(wait.group->size, 0));
  }

  /// Most of the members are there and these are not. Of two nobody is more.
  [[nodiscard]] static bool is_minority(const RecordedWait& wait, const RankSet& ranks) {
    return size_of(wait) > 2 && 2 * ranks.size() < size_of(wait);
  }

  [[nodiscard]] static RankSet common(const RankSet& a, const RankSet& b) {
    return a.minus(a.minus(b));
  }

  /// Those whom most members of a group wait for, or two ranks in calls of their own.
  [[nodiscard]] RankSet convicted(const RankSet& roots) const {
    RankSet culprits;
    std::map<std::int32_t, RankSet> waiters;
    for (const RecordedWait& wait : graph_.waits()) {
      const RankSet owing = common(wait.owing(), roots);
      for (const Rank rank : owing) {
        if (is_minority(wait, wait.owing()))
          culprits.insert(rank);
        if (wait.owing().size() == 1) {
          for (const Rank waiter : wait.waiting)
            waiters[rank.value].insert(waiter);
        }
      }
    }
    for (const auto& [rank, others] : waiters) {
      if (others.size() > 1)
        culprits.insert(Rank{rank});
    }
    return culprits;
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
    RankSet culprits = convicted(roots);
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
    if (culprits.empty() && is_minority(wait, wait.entered) && wait.absent == absent &&
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
    const RankSet culprits = unexplained_in(circle);
    return finished(
        Code::kWaitCycle, first_of(circle), culprits,
        fmt::format("{} wait for each other in a circle: {}", words(circle), places_of(circle)));
  }

  /// Those who owe a call, and issued others that all ranks else issue after it.
  [[nodiscard]] RankSet went_past() const {
    const IssueOrder order(run_);
    RankSet passed;
    for (const RecordedWait& wait : graph_.waits()) {
      if (wait.to_one || wait.supposed || wait.differs)
        continue;
      for (const Rank rank : wait.owing()) {
        if (!passed.contains(rank) && order.went_past(rank, wait))
          passed.insert(rank);
      }
    }
    return passed;
  }

  /// The few whom the many wait for in a call of the circle, and who do not wait themselves for
  /// such: they did not issue it, or else their devices did not come to it. Nobody where that is
  /// not one place.
  [[nodiscard]] RankSet unexplained_in(const RankSet& circle) const {
    for (const bool by_hosts : {true, false}) {
      std::vector<const RecordedWait*> waits;
      RankSet few;
      for (const RecordedWait& wait : graph_.waits()) {
        const RankSet owing = common(wait.owing(), circle);
        if (owing.empty() || common(wait.running, circle).empty() || wait.supposed ||
            wait.absent.empty() == by_hosts || !is_minority(wait, wait.owing()))
          continue;
        waits.push_back(&wait);
        for (const Rank rank : owing)
          few.insert(rank);
      }
      RankSet left = few;
      for (const RecordedWait* const wait : waits)
        left = by_hosts ? left : left.minus(wait->running);
      const bool one_place = std::any_of(waits.begin(), waits.end(), [&](const RecordedWait* wait) {
        return left.minus(wait->owing()).empty();
      });
      if (!few.empty())
        return one_place ? left : RankSet{};
    }
    return {};
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
      finding.evidence.push_back(
          fmt::format("{}: in {}{}", words(wait.waiting), label(wait), for_whom));
    }
    for (const Rank rank : finding.culprits) {
      const Collective* const last = last_call(rank);
      if (last == nullptr || finding.evidence.size() >= kLinesMax)
        break;
      finding.evidence.push_back(fmt::format("rank {}: its last call is {} {}#{}{}", rank.value,
                                             history::name_of(last->op),
                                             run_.process_of(rank)->groups[last->group].name,
                                             last->seq, last->completed_ns ? ", done" : ""));
    }
    if (const auto waited = graph_.longest_ns())
      finding.evidence.push_back(
          fmt::format("the longest wait was {:.1f} s when its dump was "
                      "written",
                      static_cast<double>(*waited) / 1e9));
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
};

}  // namespace

Verdict RecordedWaits::check(const Job& job) const {
  Verdict verdict{.name = std::string(name())};
  const RecordedGraph graph(job.run(), job.groups());
  verdict.examined["processes"] = job.run().processes.size();
  verdict.examined["calls that stand still"] = graph.waits().size();
  const std::optional<std::uint64_t> longest = graph.longest_ns();
  if (job.groups().empty()) {
    verdict.reason = "the dumps have no call";
  } else if (graph.waits().empty() || (longest && *longest < kMovingNs)) {
    verdict.outcome = Outcome::kPass;  // Or the job went on while they were written.
  } else if (auto finding = Explainer(job.run(), graph).finding()) {
    verdict.outcome = Outcome::kFail;
    verdict.findings.push_back(std::move(*finding));
  } else {
    const RecordedWait& wait = graph.waits().front();
    verdict.reason = incomplete(fmt::format(
        "{} in {}, all that have a dump have entered it, and whether it goes on does not show",
        words(wait.waiting) + plural(wait.waiting, " waits", " wait"),
        wait.group->label(*wait.call)));
  }
  return verdict;
}

}  // namespace lockstep::checkers
