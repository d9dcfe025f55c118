#include "checkers/order/lines_part.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "checkers/blame/attribution.h"
#include "harness/history/format.h"
#include "harness/model/call_site.h"
#include "harness/model/coverage.h"

namespace lockstep::checkers {
namespace {

constexpr std::uint64_t kLeftOutMax = 16;
constexpr std::uint64_t kAlikeMin = 1;  // Calls from the same lines after those left out.

/// (What is received takes the size of what was sent.)
bool same_line(const Member& a, std::uint64_t i, const Member& b, std::uint64_t j) {
  const Collective* const x = a.at(i);
  const Collective* const y = b.at(j);
  return x != nullptr && y != nullptr && x->op == y->op && a.site_key(*x) != 0 &&
         a.site_key(*x) == b.site_key(*y);
}

/// The first place where these two issued one call from two lines that are known.
std::optional<std::uint64_t> parting_of(const Member& a, const Member& b) {
  for (std::uint64_t seq = 0; seq < std::min(a.end_seq(), b.end_seq()); ++seq) {
    const Collective* const x = a.at(seq);
    const Collective* const y = b.at(seq);
    if (x == nullptr || y == nullptr || x->overlapped || y->overlapped || a.site_key(*x) == 0 ||
        b.site_key(*y) == 0)
      return std::nullopt;
    if (a.site_key(*x) != b.site_key(*y))
      return seq;
  }
  return std::nullopt;
}

/// How many calls of `longer` from the parting on `shorter` has not: its own are the next ones, as
/// far as there are any. 0: that does not fit, or the other way round fits as well.
std::uint64_t calls_left_out(const Member& shorter, const Member& longer, std::uint64_t parted) {
  const auto fits = [&](const Member& a, const Member& b, std::uint64_t more) {
    std::uint64_t alike = 0;
    for (std::uint64_t n = 0; parted + n < a.end_seq() && parted + more + n < b.end_seq(); ++n) {
      if (!same_line(a, parted + n, b, parted + more + n))
        return false;
      ++alike;
    }
    return alike >= kAlikeMin;
  };
  for (std::uint64_t more = 1; more <= kLeftOutMax; ++more) {
    if (fits(longer, shorter, more))
      return 0;
  }
  for (std::uint64_t more = 1; more <= kLeftOutMax; ++more) {
    if (fits(shorter, longer, more))
      return more;
  }
  return 0;
}

/// A member that waits, one that never comes, and where those two parted.
struct Pair {
  const Member* waits{};
  const Member* other{};
  std::uint64_t parted{}, left_out{};
};

std::optional<Pair> pair_in(const GroupView& group) {
  std::optional<Pair> first;
  for (const Member& waits : group.members) {
    for (const Member& other : group.members) {
      if (!ends_in_a_wait(waits) || other.end_seq() >= waits.end_seq() || other.slots.empty())
        continue;
      const auto parted = parting_of(other, waits);
      const std::uint64_t calls = parted ? calls_left_out(other, waits, *parted) : 0;
      if (calls != 0 && (!first || *parted < first->parted))
        first = Pair{&waits, &other, *parted, calls};
    }
  }
  return first;
}

/// By the line of their call at the place.
std::vector<RankSet> classes_at(const GroupView& group, std::uint64_t seq) {
  std::vector<std::pair<std::uint64_t, RankSet>> by_line;
  for (const Member& member : group.members) {
    const Collective* const call = member.at(seq);
    const std::uint64_t key = call == nullptr ? 0 : member.site_key(*call);
    auto place = std::find_if(by_line.begin(), by_line.end(),
                              [&](const auto& each) { return each.first == key; });
    if (place == by_line.end())
      place = by_line.insert(by_line.end(), {key, {}});
    place->second.insert(member.rank);
  }
  std::vector<RankSet> classes;
  for (auto& [key, ranks] : by_line)
    classes.push_back(std::move(ranks));
  return classes;
}

RankSet beside(const GroupView& group, std::uint64_t seq, Rank rank) {
  for (RankSet& ranks : classes_at(group, seq)) {
    if (ranks.contains(rank))
      return std::move(ranks);
  }
  return {rank};
}

/// The line of the user's that makes the difference: of the helper's caller, as a rule.
std::string line_where_parts(const Member& of, const Member& other, std::uint64_t seq) {
  return at_site(parting_site_of(*of.process, *of.at(seq), *other.process, *other.at(seq), "peer"));
}

/// One line of the user's, and who called it from where is another matter.
bool same_helper(const Member& a, const Collective& x, const Member& b, const Collective& y) {
  const Frame* const one = user_frame(a.process->sites[x.site].frames);
  const Frame* const other = user_frame(b.process->sites[y.site].frames);
  return one != nullptr && other != nullptr && one->module == other->module &&
         one->function == other->function && one->offset == other->offset;
}

/// The lines of the two at `last` have met often, or again after others: `if rank == 0:`.
bool belong_together(const Member& a, const Member& b, std::uint64_t parted, std::uint64_t last) {
  constexpr std::uint64_t kOften = 3;  // One call of a helper may be two of a backend's.
  std::uint64_t met = 0;
  bool again = false;
  for (std::uint64_t seq = parted; seq < last; ++seq) {
    const bool same = a.site_key(*a.at(seq)) == a.site_key(*a.at(last)) &&
                      b.site_key(*b.at(seq)) == b.site_key(*b.at(last));
    again |= !same && met > 0;
    met += same ? 1 : 0;
  }
  return again || met >= kOften;
}

}  // namespace

bool ends_in_a_wait(const Member& member) {
  const Collective* const last = member.slots.empty() ? nullptr : member.slots.back();
  return last != nullptr && (last->failed || !last->completed_ns) && !last->completion_unseen;
}

std::optional<Finding> left_out_behind_a_helper(const Run& run, const GroupView& group) {
  const auto pair = pair_in(group);
  if (!pair || !known_before(group, pair->parted) || !journal_is_whole(run))
    return std::nullopt;
  const Member& one = *pair->other;
  const Member& peer = *pair->waits;
  const RankSet ranks = beside(group, pair->parted, one.rank);
  const RankSet peers = beside(group, pair->parted, peer.rank);
  const Attribution blame = blame_minority(group, classes_at(group, pair->parted), true);
  Finding finding;
  finding.code = Code::kMissingCall;
  finding.group = group.label();
  const Collective& due = *peer.at(pair->parted);
  finding.op = std::string(history::name_of(due.op));
  finding.seq = pair->parted;
  finding.at_ns = due.issued_ns;
  finding.confidence = blame.confidence;
  if (blame.culprits == ranks)
    finding.culprits = ranks;
  else
    finding.also.push_back(Code::kExtraCall);
  for (const Member& member : group.members) {
    if (!finding.culprits.contains(member.rank))
      finding.affected.insert(member.rank);
  }
  const std::string its = line_where_parts(one, peer, pair->parted);
  const std::string theirs = line_where_parts(peer, one, pair->parted);
  const std::string calls =
      pair->left_out == 1 ? "a call" : fmt::format("{} calls", pair->left_out);
  finding.headline =
      finding.culprits.empty()
          ? fmt::format("the lines of {} and {} part at {}: {} {} that the other{} not",
                        words(ranks), words(peers), group.label(due), words(peers),
                        (peers.size() == 1 ? "has " : "have ") + calls + theirs,
                        ranks.size() == 1 ? " has" : "s have")
          : fmt::format("{} left out {}{}, which {} made; its next one{} was taken for it",
                        words(ranks), calls, theirs, words(peers), its);
  for (const auto& [member, other] : {std::pair{&one, &peer}, std::pair{&peer, &one}}) {
    const std::string role = finding.culprits.contains(member->rank) ? "culprit" : "peer";
    finding.add(parting_site_of(*member->process, *member->at(pair->parted), *other->process,
                                *other->at(pair->parted), role));
  }
  finding
      .tell(EvidenceKind::kCall, {one.rank, peer.rank},
            "at #{} {} called{}, {} called{}; nothing in the calls differs", pair->parted,
            words(ranks), its, words(peers), theirs)
      .about(group.place(pair->parted));
  finding.tell(EvidenceKind::kCall, ranks,
               "from there on the lines of {} are those that {} had {} later", words(ranks),
               words(peers), calls);
  finding.cause =
      "an exception that was caught there, a `continue` or a condition let it pass the "
      "call; what it sent or gave next went to the others as this one";
  return finding;
}

std::optional<Evidence> may_have_got_another_call(const Run& run, const GroupView& group,
                                                  Rank rank) {
  const Member* const member = group.member(rank);
  if (member == nullptr || member->slots.empty() || member->slots.back() == nullptr)
    return std::nullopt;
  const std::uint64_t last = member->end_seq() - 1;
  const Collective& call = *member->slots.back();
  if (&call != &member->process->collectives.back() || !journal_is_whole(run))
    return std::nullopt;
  for (const Member& other : group.members) {
    const Collective* const theirs = other.at(last);
    const auto parted = theirs == nullptr ? std::nullopt : parting_of(*member, other);
    const bool known =
        parted &&
        std::all_of(member->slots.begin(), member->slots.end(),
                    [](auto* c) { return c != nullptr; }) &&
        std::all_of(other.slots.begin(), other.slots.end(), [](auto* c) { return c != nullptr; });
    if (!known || *parted > last || member->site_key(call) == other.site_key(*theirs) ||
        !same_helper(*member, call, other, *theirs))
      continue;
    if (!belong_together(*member, other, *parted, last))
      return evidence_of(EvidenceKind::kCall, {rank, other.rank},
                         "what rank {} got in {} called{} rank {} gave{}: another call of the "
                         "same helper",
                         rank.value, group.label(call), line_where_parts(*member, other, last),
                         other.rank.value, line_where_parts(other, *member, last))
          .about(group.place(call));
  }
  return std::nullopt;
}

}  // namespace lockstep::checkers
