#include "checkers/order/divergence.h"

#include <fmt/format.h>

#include <algorithm>

#include "checkers/blame/attribution.h"
#include "checkers/blame/sequence_alignment.h"
#include "checkers/order/crossed_threads.h"
#include "harness/model/call_site.h"
#include "harness/model/matching.h"

namespace lockstep::checkers {
namespace {

constexpr std::size_t kBefore = 256;
constexpr std::size_t kAfter = 64;
constexpr std::size_t kLinesMax = 8;

/// Members that made the same call, by rank of the first.
std::vector<std::vector<At>> classes_of(const std::vector<At>& calls) {
  std::vector<std::vector<At>> classes;
  for (const At& at : calls) {
    const auto place = std::find_if(
        classes.begin(), classes.end(),
        [&](const std::vector<At>& members) { return agree(*members.front().call, *at.call); });
    if (place == classes.end())
      classes.push_back({at});
    else
      place->push_back(at);
  }
  return classes;
}

RankSet ranks_in(const std::vector<At>& calls) {
  RankSet ranks;
  for (const At& at : calls)
    ranks.insert(at.member->rank);
  return ranks;
}

/// They issued this call and the next one from two threads, and so nothing fixes their order.
RankSet from_two_threads(const GroupView& group, std::uint64_t seq) {
  RankSet ranks;
  for (const Member& member : group.members) {
    const Collective *one = member.at(seq), *next = member.at(seq + 1);
    if (one != nullptr && next != nullptr &&
        issuer_of(*member.process, *one) != issuer_of(*member.process, *next))
      ranks.insert(member.rank);
  }
  return ranks;
}

/// Of the two ranks that differ here one has issued its call from a thread of the program's own,
/// and both issue from such a thread and from another: who has issued more by then is chance.
/// (Autograd's threads wait for the one that calls backward, and it for them.)
RankSet from_own_threads(const At& a, const At& b) {
  const auto both_kinds = [](const Member& member) {
    bool own = false;
    bool other = false;
    for (const Collective* const call : member.slots) {
      if (call != nullptr)
        (is_of_python_thread(*member.process, *call) ? own : other) = true;
    }
    return own && other;
  };
  if (is_of_python_thread(*a.member->process, *a.call) ==
          is_of_python_thread(*b.member->process, *b.call) ||
      !both_kinds(*a.member) || !both_kinds(*b.member))
    return {};
  return RankSet{a.member->rank, b.member->rank};
}

std::string lower_title(Code code) { return std::string(row_of(code).title); }

class Divergence {
 public:
  Divergence(const Run& run, const GroupView& group, std::uint64_t seq)
      : run_(run),
        group_(group),
        seq_(seq),
        began_(seq),
        lines_part_(seq),
        classes_(classes_of(calls_at(group, seq))) {
    std::stable_sort(classes_.begin(), classes_.end(),
                     [](const auto& a, const auto& b) { return a.size() > b.size(); });
  }

  Finding finding() {
    attribute();
    Finding finding;
    finding.code = mismatch_codes().front();
    finding.also = mismatch_codes();
    RankSet threaded = from_own_threads(suspect(), reference());
    if (!threaded.empty())
      blame_ = {};
    explain_by_alignment(finding);
    finding.also.erase(std::remove(finding.also.begin(), finding.also.end(), finding.code),
                       finding.also.end());
    if (const RankSet two = from_two_threads(group_, seq_);
        finding.code == Code::kSwapped && !two.empty())
      threaded = two;
    if (!threaded.empty()) {
      blame_ = {};
      if (finding.code != Code::kSwapped) {
        finding.also.insert(finding.also.begin(), finding.code);
        std::erase(finding.also, Code::kSwapped);
        finding.code = Code::kSwapped;
      }
      threaded_ = threaded;
      say_what_threads_did(threaded, finding);
      if (const auto crossed = crossed_threads(run_, group_, seq_))  // What each thread calls.
        finding.evidence.insert(finding.evidence.end(), std::next(crossed->evidence.begin()),
                                crossed->evidence.end());
    }
    finding.group = group_.label();
    finding.seq = began_;
    finding.op = std::string(history::name_of(began(reference()).call->op));
    finding.culprits = blame_.culprits;
    finding.confidence = blame_.confidence;
    for (const At& at : calls_at(group_, seq_)) {
      finding.at_ns = std::max(finding.at_ns, at.call->issued_ns);
      if (!blame_.culprits.contains(at.member->rank))
        finding.affected.insert(at.member->rank);
    }
    add_sites(finding);
    add_evidence(finding);
    finding.headline = headline(finding.code);
    return finding;
  }

 private:
  /// A peer that is taken for right, and the one held against it.
  [[nodiscard]] const At& reference() const { return classes_[reference_class_].front(); }
  [[nodiscard]] const At& suspect() const { return classes_[suspect_class_].front(); }

  /// The call of the same member where the two parted: calls may look alike for a while after.
  [[nodiscard]] At began(const At& at) const {
    const Collective* call = at.member->at(began_);
    return {at.member, call == nullptr ? at.call : call};
  }

  void attribute() {
    std::vector<RankSet> sets;
    for (const auto& members : classes_)
      sets.push_back(ranks_in(members));
    const bool blamable = known_before(group_, seq_);
    blame_ = blame_minority(group_, sets, blamable);
    if (blame_.culprits.empty())
      blame_ = blame_unusual_call(run_, group_, seq_, blamable);
    reference_class_ = 0;
    suspect_class_ = 1;
    for (std::size_t i = 0; i < classes_.size(); ++i) {
      const bool guilty = blame_.culprits.contains(classes_[i].front().member->rank);
      if (guilty && blame_.culprits.contains(reference().member->rank) && i == 0)
        std::swap(reference_class_, suspect_class_);
    }
  }

  /// Of those that made the same call: what came after it is what explains it, and some may be
  /// stuck in it.
  [[nodiscard]] static const Member& furthest(const std::vector<At>& members) {
    return *std::max_element(members.begin(), members.end(), [](const At& a, const At& b) {
              return a.member->end_seq() < b.member->end_seq();
            })->member;
  }

  [[nodiscard]] std::vector<Code> mismatch_codes() const {
    return differences(*reference().call, *suspect().call);
  }

  void explain_by_alignment(Finding& finding) {
    const TokenWindow suspect_window =
        window_around(run_, furthest(classes_[suspect_class_]), seq_, kBefore, kAfter);
    const TokenWindow reference_window =
        window_around(run_, furthest(classes_[reference_class_]), seq_, kBefore, kAfter);
    const Explanation why = explain(suspect_window, reference_window);
    if (why.code == Code::kSwapped || (why.code != Code::kNone && !blame_.culprits.empty())) {
      finding.code = why.code;
      calls_ = why.calls;
      began_ = seq_ - why.back;
    } else if (why.code != Code::kNone) {
      // Without a culprit, one rank's extra call is the other's missing one.
      finding.also.insert(finding.also.end(), {Code::kExtraCall, Code::kMissingCall});
      lines_part_ = seq_ - why.back;
    }
    finding.also.insert(finding.also.end(), why.also.begin(), why.also.end());
    if (why.matched > 0 && !blame_.culprits.empty() && finding.code != Code::kSwapped)
      finding.tell(EvidenceKind::kCall, blame_.culprits,
                   "the next {} call{} of {} and its peers agree again after {} {}", why.matched,
                   why.matched == 1 ? "" : "s", words(blame_.culprits), why.calls,
                   why.code == Code::kExtraCall ? "extra" : "left out");
  }

  /// Where calls that look alike came from other lines: of the two the one is a call too many, or
  /// the other was left out.
  void add_where_lines_part(Finding& finding) const {
    const Member& a = furthest(classes_[reference_class_]);
    const Member& b = furthest(classes_[suspect_class_]);
    const auto parting_site = [&](const Member& of, const Member& other) {
      return parting_site_of(*of.process, *of.at(lines_part_), *other.process,
                             *other.at(lines_part_), "peer");
    };
    std::vector<std::string> places;
    for (const auto& [member, other] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
      if (const auto site = parting_site(*member, *other)) {
        finding.sites.push_back(*site);
        places.push_back(fmt::format("rank {}{}", member->rank.value, at_site(site)));
      }
    }
    finding
        .tell(EvidenceKind::kCall, {a.rank, b.rank}, "their lines part at #{}: {}", lines_part_,
              fmt::join(places, ", "))
        .about(group_.place(lines_part_));
  }

  void add_sites(Finding& finding) const {
    if (lines_part_ != seq_) {
      add_where_lines_part(finding);
      return;
    }
    const bool convicted = blame_.culprits.contains(suspect().member->rank);
    const At wrong = began(suspect());
    const At right = began(reference());
    const std::string role = convicted ? "culprit" : "peer";
    // An extra call may well come from the line that all use, called once more from elsewhere.
    const auto parting = [](const At& at, const At& other, const std::string& as) {
      return parting_site_of(*at.member->process, *at.call, *other.member->process, *other.call,
                             as);
    };
    const auto own = site_of(*wrong.member->process, *wrong.call, role);
    const auto peer = site_of(*right.member->process, *right.call, "peer");
    const bool is_extra = finding.code == Code::kExtraCall;
    const bool one_line = own && peer && own->file == peer->file && own->line == peer->line;
    finding.add(one_line || is_extra ? parting(wrong, right, role) : own);
    finding.add(one_line && !is_extra ? parting(right, wrong, "peer") : peer);
  }

  void add_evidence(Finding& finding) const {
    for (std::size_t i = 0; i < classes_.size() && i < kLinesMax; ++i) {
      const At& first = classes_[i].front();
      const RankSet ranks = ranks_in(classes_[i]);
      finding
          .tell(EvidenceKind::kCall, ranks, "{} at #{}: {}", words(ranks), seq_,
                describe(*first.call))
          .about(group_.place(seq_))
          .at(site_of(*first.member->process, *first.call,
                      blame_.culprits.contains(first.member->rank) ? "culprit" : "peer"));
    }
    RankSet others;
    for (const Member& member : group_.members) {
      if (member.at(seq_) == nullptr)
        others.insert(member.rank);
    }
    if (!others.empty())
      finding.unseen.push_back(fmt::format("{} of {} at #{}", words(others), group_.label(), seq_));
  }

  [[nodiscard]] std::string headline(Code code) const {
    const std::string whose = words(blame_.culprits);
    const At right = began(reference());
    const std::string expected = group_.label(*right.call);
    const std::string actual(history::name_of(began(suspect()).call->op));
    const std::string peers = words(ranks_in(classes_[reference_class_]));
    if (code == Code::kExtraCall)
      return fmt::format(
          "{} issued {} {} at {}#{}, which {} did not issue", whose,
          calls_ == 1 ? "an extra" : fmt::format("{} extra calls, the first of them", calls_),
          actual, group_.label(), began_, peers);
    if (code == Code::kMissingCall)
      return fmt::format("{} left out {}{} and went on to the next {}; {} issued it", whose,
                         expected, calls_ > 1 ? fmt::format(" and {} more", calls_ - 1) : "",
                         actual, peers);
    if (code == Code::kSwapped && !threaded_.empty())
      return fmt::format("two threads of {} call on group {}, and at #{} {} issued {}, {} {}",
                         words(threaded_), group_.label(), seq_,
                         words(ranks_in(classes_[suspect_class_])), describe(*suspect().call),
                         peers, describe(*reference().call));
    if (code == Code::kSwapped)
      return fmt::format("{} and {} issue the calls {}#{} and #{} in opposite order",
                         words(ranks_in(classes_[suspect_class_])), peers, group_.label(), seq_,
                         seq_ + 1);
    if (!blame_.culprits.empty())
      return fmt::format("{} issued {} at {}#{}, {} issued {}", whose, describe(*suspect().call),
                         group_.label(), seq_, peers, describe(*reference().call));
    return fmt::format("{} at {}#{}: {}: {}, {}: {}", lower_title(code), group_.label(), seq_,
                       words(ranks_in(classes_[suspect_class_])), describe(*suspect().call), peers,
                       describe(*reference().call));
  }

  const Run& run_;
  const GroupView& group_;
  std::uint64_t seq_;
  std::uint64_t began_;
  std::uint64_t lines_part_;  ///< Where nobody is at fault: from here on the lines differ.
  std::vector<std::vector<At>> classes_;
  std::size_t reference_class_{};
  std::size_t suspect_class_{1};
  Attribution blame_{};
  RankSet threaded_{};  ///< Two threads of these issue on the group.
  std::uint64_t calls_{1};
};

}  // namespace

std::vector<At> calls_at(const GroupView& group, std::uint64_t seq) {
  std::vector<At> calls;
  for (const Member& member : group.members) {
    if (const Collective* call = member.at(seq); call != nullptr)
      calls.push_back({&member, call});
  }
  return calls;
}

Finding divergence(const Run& run, const GroupView& group, std::uint64_t seq) {
  return Divergence(run, group, seq).finding();
}

std::optional<Finding> silent_swap(const GroupView& group, std::uint64_t seq, bool had_agreed) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> pairs;
  std::vector<At> here = calls_at(group, seq);
  if (here.size() != group.members.size() || (here.size() < 3 && !had_agreed))
    return std::nullopt;
  for (const At& at : here) {
    const Collective* next = at.member->at(seq + 1);
    if (next == nullptr || !agree(*next, *here.front().call) || next->overlapped ||
        at.call->overlapped)
      return std::nullopt;
    pairs.emplace_back(at.member->site_key(*at.call), at.member->site_key(*next));
  }
  const auto [x, y] = pairs.front();
  if (x == 0 || y == 0 || x == y)
    return std::nullopt;
  RankSet turned;
  std::size_t other = 0;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (pairs[i] == std::pair{y, x}) {
      turned.insert(here[i].member->rank);
      other = i;
    } else if (pairs[i] != std::pair{x, y}) {
      return std::nullopt;
    }
  }
  if (turned.empty())
    return std::nullopt;
  Finding finding;
  finding.code = Code::kSwapped;
  finding.group = group.label();
  finding.op = std::string(history::name_of(here.front().call->op));
  finding.seq = seq;
  finding.confidence = Confidence::kLikely;
  RankSet straight;
  for (const At& at : here) {
    finding.at_ns = std::max(finding.at_ns, at.call->issued_ns);
    finding.affected.insert(at.member->rank);
    if (!turned.contains(at.member->rank))
      straight.insert(at.member->rank);
  }
  const RankSet threaded = from_two_threads(group, seq);
  const bool blamable = threaded.empty() && known_before(group, seq);
  if (!threaded.empty())
    say_what_threads_did(threaded, finding);
  const Attribution blame = blame_minority(group, {turned, straight}, blamable);
  finding.culprits = blame.culprits;
  finding.affected = finding.affected.minus(blame.culprits);
  for (const std::size_t i : {other, std::size_t{0}}) {
    const bool guilty = blame.culprits.contains(here[i].member->rank);
    finding.add(site_of(*here[i].member->process, *here[i].call, guilty ? "culprit" : "peer"));
  }
  finding.headline = fmt::format("{} and {} issue the equal calls {}#{} and #{} in opposite order",
                                 words(turned), words(straight), group.label(), seq, seq + 1);
  return finding;
}

}  // namespace lockstep::checkers
