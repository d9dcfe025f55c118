#include "harness/diagnose/merge.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "checkers/blame/attribution.h"
#include "harness/model/call_site.h"
#include "harness/model/group_view.h"
#include "harness/model/ranks_by_text.h"

namespace lockstep::diagnose {
namespace {

std::string where(const Standing& one) { return one.doing + at_site(one.site); }

/// "ranks 0-2 wait in backward at train.py:17".
RanksByText by_text(const std::vector<const Standing*>& standings) {
  RanksByText lines;
  for (const Standing* one : standings)
    add_rank(lines, where(*one), one->rank);
  std::stable_sort(lines.begin(), lines.end(),
                   [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
  return lines;
}

std::string seconds(std::uint64_t ns) {
  return fmt::format("{:.0f} s", static_cast<double>(ns) / 1e9);
}

class Merge {
 public:
  explicit Merge(std::vector<Standing> ranks) { diagnosis_.ranks = std::move(ranks); }

  Diagnosis decide() {
    for (const Standing& one : diagnosis_.ranks) {
      by_rank_[one.rank] = &one;
      if (one.waits_for_others())
        waiting_.push_back(&one);
    }
    if (waiting_.empty())
      nobody_waits();
    else if (waiting_.size() == diagnosis_.ranks.size() && waited_ns() < kHangNs)
      not_for_long();
    else
      look_whom_they_wait_for();
    if (diagnosis_.finding)
      finish(*diagnosis_.finding);
    return std::move(diagnosis_);
  }

 private:
  /// The shortest wait of all that wait; 0 where one is not told.
  [[nodiscard]] std::uint64_t waited_ns() const {
    std::uint64_t shortest = kNeverNs;
    for (const Standing* one : waiting_)
      shortest = std::min(shortest, one->for_ns.value_or(0));
    return shortest;
  }
  [[nodiscard]] std::uint64_t longest_ns() const {
    std::uint64_t longest = 0;
    for (const Standing* one : waiting_)
      longest = std::max(longest, one->for_ns.value_or(0));
    return longest;
  }

  void not_for_long() {
    RankSet untold;
    for (const Standing* one : waiting_) {
      if (!one->for_ns)
        untold.insert(one->rank);
    }
    diagnosis_.outcome = Outcome::kPass;
    diagnosis_.reason =
        untold.empty()
            ? fmt::format(
                  "nobody is accused: not all that wait have done so for longer than {}, and less "
                  "than {} is no hang yet",
                  seconds(waited_ns()), seconds(kHangNs))
            : fmt::format(
                  "nobody is accused: how long {} waited is not told; a second look after {} "
                  "tells, "
                  "as --watch 10 does",
                  words(untold) + (untold.size() == 1 ? " has" : " have"), seconds(kHangNs));
  }

  void nobody_waits() {
    std::vector<const Standing*> exiting;
    for (const Standing& one : diagnosis_.ranks) {
      if (one.stand == Stand::kExiting && one.for_ns.value_or(0) >= kHangNs)
        exiting.push_back(&one);
    }
    if (!exiting.empty())
      return accuse(exiting, Code::kWillNotExit);
    diagnosis_.outcome = Outcome::kPass;
    const bool some_exit =
        std::any_of(diagnosis_.ranks.begin(), diagnosis_.ranks.end(),
                    [](const Standing& one) { return one.stand == Stand::kExiting; });
    diagnosis_.reason =
        some_exit ? "no rank waits for another one; who is on its way out may get there: look again"
                  : "no rank waits for another one";
  }

  /// The ranks that this one waits for.
  [[nodiscard]] RankSet awaited(const Standing& one) const {
    if (!one.waits_for_others())
      return one.held_by;
    RankSet others;
    if (one.peer) {
      others.insert(Rank{*one.peer});
      return others;
    }
    for (const Standing& other : diagnosis_.ranks) {
      const bool member = one.members.empty() || std::find(one.members.begin(), one.members.end(),
                                                           other.rank.value) != one.members.end();
      if (member && other.rank != one.rank && !same_call(one, other))
        others.insert(other.rank);
    }
    return others;
  }

  static bool same_call(const Standing& a, const Standing& b) {
    return a.stand == b.stand && a.call == b.call && a.stand != Stand::kInMessage &&
           a.stand != Stand::kInStore;
  }

  [[nodiscard]] std::set<Rank> reached_from_waiting() const {
    std::set<Rank> reached;
    std::vector<Rank> open;
    for (const Standing* one : waiting_) {
      for (const Rank rank : awaited(*one))
        open.push_back(rank);
    }
    while (!open.empty()) {
      const Rank rank = open.back();
      open.pop_back();
      const auto at = by_rank_.find(rank);
      if (at == by_rank_.end() || !reached.insert(rank).second)
        continue;
      for (const Rank next : awaited(*at->second))
        open.push_back(next);
    }
    return reached;
  }

  void look_whom_they_wait_for() {
    std::vector<const Standing*> known, open, pool;
    for (const Rank rank : reached_from_waiting()) {
      const Standing& one = *by_rank_.at(rank);
      if (one.waits_for_others() || !one.held_by.empty())
        continue;
      const bool shown = one.stand == Stand::kExiting || one.stand == Stand::kEnded ||
                         (one.stand == Stand::kHeld && one.held != Doing::kPoolTask);
      (shown ? known : open).push_back(&one);
    }
    if (longest_ns() < kHangNs)
      not_for_long();
    else if (!known.empty())
      accuse(known, code_for(known));
    else if (!open.empty())
      cannot_decide(open);
    else if (waited_ns() < kHangNs)
      not_for_long();
    else
      all_wait();
  }

  [[nodiscard]] Code code_for(const std::vector<const Standing*>& known) const {
    const bool joining = std::any_of(waiting_.begin(), waiting_.end(), [](const Standing* one) {
      return one->stand == Stand::kInRendezvous;
    });
    const auto all = [&](Stand stand) {
      return std::all_of(known.begin(), known.end(),
                         [&](const Standing* one) { return one->stand == stand; });
    };
    if (joining)
      return Code::kNeverJoined;
    if (all(Stand::kExiting))
      return Code::kWillNotExit;
    return all(Stand::kEnded) ? Code::kLeftEarly : Code::kStalledOutside;
  }

  void accuse(const std::vector<const Standing*>& known, Code code) {
    Finding& finding = start(code);
    for (const Standing* one : known)
      finding.culprits.insert(one->rank);
    const RanksByText first = by_text(known);
    finding.headline = fmt::format("{} {}", words(first.front().second), first.front().first);
    if (!waiting_.empty())
      finding.headline += fmt::format("; {}", those_that_wait());
    for (const Standing* one : known) {
      add_site(finding, *one, "culprit");
      if (finding.help.empty())
        finding.help = one->help;
    }
  }

  /// A few that compute while most have waited for long are at least late; of others nothing shows
  /// that they will not come.
  void cannot_decide(const std::vector<const Standing*>& open) {
    const bool few = checkers::is_minority(open.size(), diagnosis_.ranks.size());
    const bool busy = std::all_of(open.begin(), open.end(),
                                  [](const Standing* one) { return one->stand == Stand::kBusy; });
    if (few && busy) {
      accuse(open, Code::kAbsentRank);
      diagnosis_.finding->cause = "busy with something of its own";
      return;
    }
    const RanksByText lines = by_text(open);
    diagnosis_.reason =
        fmt::format("{}; whether {} {} comes is not visible: {}", those_that_wait(),
                    words(lines.front().second), lines.front().second.size() == 1 ? "still" : "all",
                    lines.front().first);
  }

  void all_wait() {
    const std::vector<std::vector<const Standing*>> classes = classes_of_waiting();
    const bool messages = std::all_of(waiting_.begin(), waiting_.end(), [](const Standing* one) {
      return one->stand == Stand::kInMessage;
    });
    if (messages)
      return in_a_circle();
    if (classes.size() == 1)
      return all_in_one_call();
    const bool majority = checkers::is_majority(classes.front().size(), waiting_.size());
    Finding& finding = start(Code::kAbsentRank);
    std::vector<const Standing*> others;
    for (const Standing* one : waiting_) {
      const bool odd = majority && std::find(classes.front().begin(), classes.front().end(), one) ==
                                       classes.front().end();
      if (odd) {
        finding.culprits.insert(one->rank);
        others.push_back(one);
      }
      add_site(finding, *one, odd ? "culprit" : "peer");
    }
    const RanksByText all = by_text(majority ? others : waiting_);
    std::vector<std::string> told;
    for (const auto& [text, ranks] : all)
      told.push_back(fmt::format("{} {}", words(ranks), text));
    finding.headline = fmt::format("{}", fmt::join(told, "; "));
    if (majority)
      finding.headline +=
          fmt::format(", and {} not where the others are: {}", others.size() == 1 ? "is" : "are",
                      text_of_class(classes.front()));
    else
      finding.headline += ": none of them can go on before another one comes";
    tell_assumed(finding);
  }

  static std::string text_of_class(const std::vector<const Standing*>& members) {
    const RanksByText lines = by_text(members);
    return fmt::format("{} {}", words(lines.front().second), lines.front().first);
  }

  /// Largest first.
  [[nodiscard]] std::vector<std::vector<const Standing*>> classes_of_waiting() const {
    std::map<std::tuple<Stand, std::string>, std::vector<const Standing*>> by_call;
    for (const Standing* one : waiting_)
      by_call[{one->stand, one->call}].push_back(one);
    std::vector<std::vector<const Standing*>> classes;
    for (auto& [call, members] : by_call)
      classes.push_back(std::move(members));
    std::stable_sort(classes.begin(), classes.end(),
                     [](const auto& a, const auto& b) { return a.size() > b.size(); });
    return classes;
  }

  void in_a_circle() {
    Finding& finding = start(Code::kWaitCycle);
    std::vector<std::string> steps;
    for (const Standing* one : waiting_) {
      add_site(finding, *one, "peer");
      steps.push_back(fmt::format("rank {} {}{}", one->rank.value, one->doing, at_site(one->site)));
    }
    const bool told = std::all_of(waiting_.begin(), waiting_.end(),
                                  [](const Standing* one) { return one->peer.has_value(); });
    const RanksByText lines = by_text(waiting_);
    finding.headline = fmt::format(
        "{} wait for each other{}: {}", words(finding.affected), told ? " in a circle" : "",
        steps.size() <= 4 ? fmt::format("{}", fmt::join(steps, ", ")) : steps.front() + ", ...");
    if (!told)
      finding.unseen.push_back(
          "from whom, or to whom: the call has returned, and its request "
          "does not say");
  }

  void all_in_one_call() {
    Finding& finding = start(Code::kEveryoneInside);
    for (const Standing* one : waiting_)
      add_site(finding, *one, "peer");
    finding.headline = fmt::format("{}, and it does not end", text_of_class(waiting_));
    finding.unseen.push_back(
        "sizes, types and how many calls each has made: a job that was started "
        "without lockstep keeps no history");
    tell_assumed(finding);
  }

  Finding& start(Code code) {
    diagnosis_.outcome = Outcome::kFail;
    Finding& finding = diagnosis_.finding.emplace();
    finding.code = code;
    finding.confidence = Confidence::kLikely;
    for (const Standing* one : waiting_)
      finding.affected.insert(one->rank);
    return finding;
  }

  static void add_site(Finding& finding, const Standing& one, std::string_view role) {
    if (!one.site)
      return;
    finding.sites.push_back(*one.site);
    finding.sites.back().role = role;
  }

  [[nodiscard]] std::string those_that_wait() const {
    const RanksByText lines = by_text(waiting_);
    return fmt::format("{} {} been {} for {}{}", words(lines.front().second),
                       lines.front().second.size() == 1 ? "has" : "have",
                       without_verb(lines.front().first), seconds(longest_ns()),
                       lines.size() > 1 ? ", others elsewhere" : "");
  }

  /// "in all_reduce"; "waiting for its GPU".
  static std::string without_verb(const std::string& text) {
    return text.rfind("waits", 0) == 0 ? "waiting" + text.substr(5) : text;
  }

  void tell_assumed(Finding& finding) const {
    if (std::any_of(waiting_.begin(), waiting_.end(),
                    [](const Standing* one) { return one->assumed; }))
      finding.unseen.push_back("which ranks are members of the group: all are taken for members");
  }

  void finish(Finding& finding) {
    std::erase_if(waiting_, [&](const Standing* one) {
      if (!finding.culprits.contains(one->rank))
        return false;
      finding.affected.erase(one->rank);
      return true;
    });
    for (const Standing& one : diagnosis_.ranks) {
      const bool told = std::any_of(finding.sites.begin(), finding.sites.end(),
                                    [&](const SiteRef& site) { return site.rank == one.rank; });
      if (!told && one.waits_for_others())
        add_site(finding, one, "peer");
    }
    EvidenceOfRanks lines;
    for (const Standing& one : diagnosis_.ranks) {
      Evidence line = evidence_of(EvidenceKind::kWait, {one.rank}, "{}", where(one));
      line.site = one.site;
      lines.add(std::move(line));
    }
    lines.tell(finding);
    for (const Standing& one : diagnosis_.ranks) {
      for (const std::string& line : one.more)
        finding.tell_of(EvidenceKind::kProcess, {one.rank}, "{}", line);
    }
    add_rounds(finding);
  }

  /// Ranks at one line whose variables differ: who is a round behind.
  void add_rounds(Finding& finding) const {
    std::map<std::tuple<std::string, std::int32_t, std::string>, std::map<std::int64_t, RankSet>>
        values;
    for (const Standing& one : diagnosis_.ranks) {
      for (const auto& [name, value] : one.variables) {
        if (one.site && name.find("rank") == std::string::npos)
          values[{one.site->file + one.site->function, 0, name}][value].insert(one.rank);
      }
    }
    for (const auto& [key, ranks] : values) {
      std::size_t all = 0;
      for (const auto& [value, set] : ranks)
        all += set.size();
      if (ranks.size() != 2 || all < 2)
        continue;
      std::vector<std::string> told;
      RankSet both;
      for (const auto& [value, set] : ranks) {
        told.push_back(fmt::format("{} on {}", value, words(set)));
        for (const Rank rank : set)
          both.insert(rank);
      }
      finding.tell(EvidenceKind::kValue, both, "variable {}: {}", std::get<2>(key),
                   fmt::join(told, ", "));
    }
  }

  Diagnosis diagnosis_{};
  std::map<Rank, const Standing*> by_rank_{};
  std::vector<const Standing*> waiting_{};
};

}  // namespace

Diagnosis diagnosis_of(std::vector<Standing> ranks) { return Merge(std::move(ranks)).decide(); }

}  // namespace lockstep::diagnose
