#include <fmt/format.h>

#include "checkers/order/loop_parting.h"
#include "harness/history/format.h"
#include "harness/model/call_site.h"
#include "harness/model/matching.h"
#include "harness/model/ranks_by_text.h"

namespace lockstep::checkers {
namespace {

RankSet ranks_in(const std::vector<const Member*>& members) {
  RankSet ranks;
  for (const Member* member : members)
    ranks.insert(member->rank);
  return ranks;
}

/// Calls tell how many rounds they are those of; a round may have had none.
std::string count_of(std::uint64_t rounds) {
  return rounds == 0 ? "its rounds" : fmt::format("{} round{}", rounds, rounds == 1 ? "" : "s");
}

}  // namespace

std::string LoopParting::headline(bool ran_out) const {
  const Member& peer = *stayed_.front();
  const std::string loop = at_site(site_of(*peer.process, *peer.at(loop_.begin), "peer"));
  const std::uint64_t rounds = rounds_of(*left_.front());
  if (by_source_ && (rounds == 0 || rounds_of(peer) != rounds + 1))
    return fmt::format("{} left the loop{}; {} went on with another round", words(ranks_in(left_)),
                       loop_site_, words(ranks_in(stayed_)));
  if (!ran_out)
    return fmt::format("{} left the loop{} inside round {}, before {}; {} issued it",
                       words(ranks_in(left_)), loop, rounds, group_.label(*peer.at(seq_)),
                       words(ranks_in(stayed_)));
  if (all_made_their_rounds())
    return fmt::format(
        "{} made as many rounds of the loop{} as {}, with the calls of {} only: {} left out {} in "
        "one",
        words(ranks_in(left_)), loop, words(ranks_in(stayed_)), rounds,
        left_.size() == 1 ? "it" : "they", history::name_of(peer.at(loop_.begin)->op));
  if (next_of(*left_.front()) == nullptr)
    return fmt::format(
        "{} issued the calls of {} of the loop{} and ended; {} went on with round {}",
        words(ranks_in(left_)), count_of(rounds), by_source_ ? loop_site_ : loop,
        words(ranks_in(stayed_)), rounds_of(peer));
  return fmt::format("{} left the loop{} after {}; {} went on with round {}",
                     words(ranks_in(left_)), by_source_ ? loop_site_ : loop, count_of(rounds),
                     words(ranks_in(stayed_)), rounds_of(peer));
}

void LoopParting::add_sites(Finding& finding) const {
  const Member& short_one = *left_.front();
  const Collective* next = next_of(short_one);
  const Collective* last = next != nullptr ? next : short_one.at(seq_ - 1);
  finding.add(site_of(*short_one.process, *last, finding.culprits.empty() ? "peer" : "culprit"));
  const Member& peer = *stayed_.front();
  finding.add(site_of(*peer.process, *peer.at(seq_), "peer"));
}

Finding LoopParting::finding() const {
  const Collective& due = *stayed_.front()->at(seq_);
  const std::vector<Code> all = codes();
  const bool ran_out = all.front() == Code::kUnevenBatches;
  Finding finding;
  finding.code = all.front();
  finding.also.assign(all.begin() + 1, all.end());
  finding.headline = headline(ran_out);
  const bool left_out = ran_out && all_made_their_rounds();
  if (left_out) {
    finding.code = Code::kMissingCall;
    finding.also = {};
  }
  finding.affected = ranks_in(stayed_);
  const bool most_left = left_.size() > stayed_.size();
  for (const Rank rank : ranks_in(left_))
    (most_left ? finding.affected : finding.culprits).insert(rank);
  finding.group = group_.label();
  finding.op = std::string(history::name_of(due.op));
  finding.seq = seq_;
  finding.at_ns = due.issued_ns;
  finding.confidence = ran_out ? Confidence::kCertain : Confidence::kLikely;
  finding.cause =
      left_out  ? "a round of its own without these calls: no_sync, a backward that was "
                  "skipped, continue, an exception that was caught; since then its calls met "
                  "those of the others' round before"
      : ran_out ? "it made fewer rounds with these calls than the others: it had fewer "
                  "batches, made a round without them (continue, no_sync, a backward that was "
                  "skipped, an exception that was caught), or left the loop on a condition of "
                  "its own"
                : "a condition that holds on this rank only ended its loop";
  if (most_left) {
    finding.confidence = Confidence::kUnknown;
    finding.cause =
        "that most ranks left it does not tell whether they made too few rounds or the "
        "others too many";
  }
  EvidenceOfRanks lines;
  for (const Member& member : group_.members) {
    const Collective* next = next_of(member);
    const std::uint64_t rounds = rounds_of(member);
    const bool ended = next == nullptr;
    Evidence line = evidence_of(ended ? EvidenceKind::kEnd : EvidenceKind::kCall, {member.rank},
                                "{}then {}", rounds == 0 ? "" : count_of(rounds) + ", ",
                                ended ? "its program ended" : describe(*next));
    if (!ended)
      line.at(site_of(*member.process, *next, "peer"));
    if (!ended && next->group == member.group)
      line.about(group_.place(*next));
    lines.add(std::move(line));
  }
  lines.tell(finding);
  add_sites(finding);
  return finding;
}

}  // namespace lockstep::checkers
