#include "checkers/loop_exit.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "checkers/agreement.h"
#include "checkers/attribution.h"
#include "checkers/gloo_teardown.h"
#include "checkers/ranks_by_text.h"
#include "checkers/sites.h"
#include "harness/history/format.h"

namespace lockstep::checkers {
namespace {

constexpr std::uint64_t kPeriodMax = 512;
constexpr std::uint64_t kRepetitionsMin = 2;

/// The same call from the same line; a call whose line is not known is like no other.
bool is_same_call(const Member& member, std::uint64_t a, std::uint64_t b) {
  const Collective* x = member.at(a);
  const Collective* y = member.at(b);
  return x != nullptr && y != nullptr && member.site_key(*x) != 0 &&
         member.site_key(*x) == member.site_key(*y) && agree(*x, *y);
}

/// The first place where the members did not all issue one call.
std::optional<std::uint64_t> first_difference(const GroupView& group) {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  for (const Member& member : group.members) {
    begin = std::max(begin, member.first_seq);
    end = std::max(end, member.end_seq());
  }
  for (std::uint64_t seq = begin; seq < end; ++seq) {
    const Collective* first = group.members.front().at(seq);
    for (const Member& member : group.members) {
      const Collective* call = member.at(seq);
      if (first == nullptr || call == nullptr || call->overlapped || !agree(*first, *call))
        return seq;
    }
  }
  return std::nullopt;
}

bool rank_came_to_its_end(const Run& run, Rank rank) {
  return std::any_of(run.ends.begin(), run.ends.end(), [&](const ProcessEnd& end) {
    return end.role == Role::kRank && end.rank == rank && came_to_its_end(run, end);
  });
}

/// A loop of a source, in the function that it belongs to.
using Loop = std::tuple<std::string, std::string, std::int32_t>;

const std::vector<Frame>& frames_of(const Member& member, const Collective& call) {
  return member.process->sites[call.site < member.process->sites.size() ? call.site : 0].frames;
}

/// Of the object, whatever was inlined into it.
const std::string& function_of(const Frame& frame) {
  return frame.inlined_into.empty() ? frame.function : frame.inlined_into;
}

bool same_function(const Frame& x, const Frame& y) {
  return x.module == y.module && function_of(x) == function_of(y);
}

bool stands_in(const std::vector<Frame>& frames, const std::set<Loop>& loops) {
  return std::any_of(frames.begin(), frames.end(), [&](const Frame& frame) {
    return std::any_of(frame.loops.begin(), frame.loops.end(), [&](const SourceLoop& loop) {
      return loops.contains({frame.module, function_of(frame), loop.line});
    });
  });
}

/// Where a later call stands with respect to the loops around an earlier one of the same thread.
struct Whereabouts {
  std::set<Loop> left{};  ///< Around the earlier one only.
  /// Around both, each with the later one's frame: the others may have come round again in it.
  std::vector<std::pair<const Frame*, const SourceLoop*>> around_both{};
  bool is_behind{};  ///< In the source, where the calls' ways part.
};

std::optional<Whereabouts> compare(const std::vector<Frame>& earlier,
                                   const std::vector<Frame>& later) {
  if (std::max(earlier.size(), later.size()) >= history::kFramesMax)
    return std::nullopt;  // Cut off: what is around them is not known.
  Whereabouts result;
  auto a = earlier.rbegin();
  auto b = later.rbegin();
  for (;
       a != earlier.rend() && b != later.rend() && same_function(*a, *b) && a->offset == b->offset;
       ++a, ++b) {
    for (const SourceLoop& loop : b->loops)
      result.around_both.emplace_back(&*b, &loop);
  }
  if (a == earlier.rend() || b == later.rend() || !same_function(*a, *b) || a->line == 0 ||
      b->line == 0)
    return std::nullopt;
  result.is_behind = b->line > a->line;
  for (auto frame = a; frame != earlier.rend(); ++frame) {  // Functions called there have ended.
    for (const SourceLoop& loop : frame->loops) {
      const auto same = std::find(b->loops.begin(), b->loops.end(), loop);
      if (frame == a && same != b->loops.end())
        result.around_both.emplace_back(&*b, &*same);
      else
        result.left.emplace(frame->module, function_of(*frame), loop.line);
    }
  }
  return result;
}

/// What a loop's variable held while a rank was seen inside a call; nothing if that was not seen.
std::optional<std::int64_t> round_at(const Run& run, const Member& member, const Collective& call,
                                     const Frame& frame, const SourceLoop& loop) {
  std::optional<std::int64_t> value;
  for (const StackSample& sample : run.stacks) {
    if (sample.pid != member.process->pid || sample.at_ns < call.issued_ns)
      continue;
    for (const IntegerVariable& variable : sample.variables) {
      if (variable.name != loop.variable || variable.frame >= sample.frames.size())
        continue;
      const Frame& seen = sample.frames[variable.frame];
      if (same_function(seen, frame) && seen.offset == frame.offset)
        value = variable.value;
    }
  }
  return value;
}

/// A group at the place where ranks may have parted: those that went on with their repetition, and
/// those that did not.
class Parting {
 public:
  Parting(const Run& run, const GroupView& group, std::uint64_t seq)
      : run_(run), group_(group), seq_(seq) {
    for (const Member& member : group.members) {
      const auto loop = repetition_before(member, seq);
      (loop ? stayed_ : left_).push_back(&member);
      if (loop)
        loop_ = *loop;
    }
    all_have_left_ = !stayed_.empty() && !left_.empty() && all_stayed_in_one_loop();
    for (const Member* member : left_) {
      const auto loops = all_have_left_ ? loops_left_by(*member) : std::nullopt;
      all_have_left_ = loops.has_value();
      if (loops)
        loops_left_.insert(loops->begin(), loops->end());
    }
  }

  [[nodiscard]] bool is_an_exit() const {
    return all_have_left_ && std::any_of(stayed_.begin(), stayed_.end(), [&](const Member* member) {
             return cannot_go_on(*member);
           });
  }

  [[nodiscard]] Finding finding() const;

 private:
  [[nodiscard]] bool all_stayed_in_one_loop() const {
    const Collective& next = *stayed_.front()->at(seq_);
    return std::all_of(stayed_.begin(), stayed_.end(), [&](const Member* member) {
      return repetition_before(*member, seq_)->period == loop_.period &&
             agree(next, *member->at(seq_));
    });
  }

  /// What it issued after the calls that all issued, in this group or else in another one; null if
  /// nothing.
  [[nodiscard]] const Collective* next_of(const Member& member) const {
    if (const Collective* here = member.at(seq_))
      return here;
    const Collective* last = member.at(seq_ - 1);
    const auto& calls = member.process->collectives;
    const auto next = std::find_if(calls.begin(), calls.end(), [&](const Collective& call) {
      return last != nullptr && call.record > last->record;
    });
    return next == calls.end() ? nullptr : &*next;
  }

  /// Loops that all its repeated calls stand in and that its next one is behind, while the others
  /// are in the same rounds of those around both; empty if it ended well instead. Nothing: it may
  /// not have left.
  [[nodiscard]] std::optional<std::set<Loop>> loops_left_by(const Member& member) const {
    const Collective* next = next_of(member);
    if (next == nullptr)
      return rank_came_to_its_end(run_, member.rank) ? std::optional(std::set<Loop>())
                                                     : std::nullopt;
    std::set<Loop> common;
    for (std::uint64_t seq = seq_ - loop_.period; seq < seq_; ++seq) {
      const Collective* call = member.at(seq);
      if (call == nullptr)
        return std::nullopt;
      const auto now = compare(frames_of(member, *call), frames_of(member, *next));
      if (!now || !in_same_rounds(member, *next, *now))
        return std::nullopt;
      if (seq == seq_ - loop_.period)
        common = now->left;
      std::erase_if(common, [&](const Loop& loop) { return !now->left.contains(loop); });
    }
    return common.empty() ? std::nullopt : std::optional(std::move(common));
  }

  /// As the variables of these loops tell; a variable that two loops use tells nothing.
  [[nodiscard]] bool in_same_rounds(const Member& member, const Collective& next,
                                    const Whereabouts& now) const {
    if (!now.around_both.empty() && !now.is_behind)
      return false;
    return std::all_of(
        now.around_both.begin(), now.around_both.end(), [&](const auto& frame_and_loop) {
          const Frame& frame = *frame_and_loop.first;
          const SourceLoop& loop = *frame_and_loop.second;
          const auto round = round_at(run_, member, next, frame, loop);
          return round && std::all_of(stayed_.begin(), stayed_.end(), [&](const Member* peer) {
                   return round_of(*peer, frame, loop) == round;
                 });
        });
  }

  /// That of one who stayed, whose call stands elsewhere in the same function.
  [[nodiscard]] std::optional<std::int64_t> round_of(const Member& peer, const Frame& like,
                                                     const SourceLoop& loop) const {
    const Collective& call = *peer.at(seq_);
    for (const Frame& frame : frames_of(peer, call)) {
      const auto uses =
          std::count_if(frame.loops.begin(), frame.loops.end(),
                        [&](const SourceLoop& other) { return other.variable == loop.variable; });
      if (same_function(frame, like) && uses == 1 &&
          std::find(frame.loops.begin(), frame.loops.end(), loop) != frame.loops.end())
        return round_at(run_, peer, call, frame, loop);
    }
    return std::nullopt;
  }

  /// Its next call found no partner.
  [[nodiscard]] bool cannot_go_on(const Member& member) const {
    const Collective& call = *member.at(seq_);
    const bool meets_another = std::any_of(left_.begin(), left_.end(), [&](const Member* other) {
      const Collective* theirs = other->at(seq_);
      return theirs != nullptr && !agree(call, *theirs);
    });
    return meets_another || call.failed ||
           (!call.completed_ns && !rank_came_to_its_end(run_, member.rank));
  }

  /// The first one, and what it may be as well where the calls alone cannot tell.
  [[nodiscard]] std::vector<std::string> codes() const {
    if (!is_same_call(*stayed_.front(), loop_.begin, seq_))
      return {"LS306"};
    const bool whole = (seq_ - loop_.begin) % loop_.period == 0;
    // With one call in the body, or the same call twice, it does not show where it was left.
    if (whole && loop_.period > 1)
      return {"LS305"};
    return {"LS305", "LS306"};
  }

  /// By its own lines: ranks may have come there by different ways.
  [[nodiscard]] bool is_head(const Member& member, std::uint64_t seq) const {
    const Collective* const head = member.at(loop_.begin);
    const Collective* const call = member.at(seq);
    return call != nullptr && head != nullptr && agree(*head, *call) &&
           member.site_key(*call) == member.site_key(*head);
  }

  /// How often this rank came to the first call of the loop, the place of parting included, since
  /// the others came into it; a body may issue the same call several times.
  [[nodiscard]] std::uint64_t rounds_of(const Member& member) const {
    const Member& peer = *stayed_.front();
    std::uint64_t heads = 0;
    for (std::uint64_t seq = seq_ + 1; seq-- > std::max(member.first_seq, peer.first_seq);) {
      heads += is_head(member, seq) ? 1 : 0;
      const Collective* theirs = peer.at(seq);
      if (!loops_left_.empty() && theirs != nullptr &&
          !stands_in(frames_of(peer, *theirs), loops_left_))
        break;
    }
    std::uint64_t heads_of_a_round = 0;
    for (std::uint64_t seq = loop_.begin; seq < loop_.begin + loop_.period; ++seq)
      heads_of_a_round += is_head(member, seq) ? 1 : 0;
    return heads_of_a_round < 2 ? heads : (heads + heads_of_a_round - 1) / heads_of_a_round;
  }

  [[nodiscard]] std::string headline(bool ran_out) const;
  void add_sites(Finding& finding) const;

  const Run& run_;
  const GroupView& group_;
  std::uint64_t seq_;
  Repetition loop_{};
  std::vector<const Member*> stayed_{}, left_{};
  bool all_have_left_{};
  std::set<Loop> loops_left_{};
};

RankSet ranks_in(const std::vector<const Member*>& members) {
  RankSet ranks;
  for (const Member* member : members)
    ranks.insert(member->rank);
  return ranks;
}

std::string Parting::headline(bool ran_out) const {
  const Member& peer = *stayed_.front();
  const std::string loop = at_site(site_of(*peer.process, *peer.at(loop_.begin), "peer"));
  const std::uint64_t rounds = rounds_of(*left_.front());
  if (!ran_out)
    return fmt::format("{} left the loop{} inside round {}, before {}; {} issued it",
                       words(ranks_in(left_)), loop, rounds, group_.label(*peer.at(seq_)),
                       words(ranks_in(stayed_)));
  return fmt::format("{} left the loop{} after {} round{}; {} went on with round {}",
                     words(ranks_in(left_)), loop, rounds, rounds == 1 ? "" : "s",
                     words(ranks_in(stayed_)), rounds_of(peer));
}

void Parting::add_sites(Finding& finding) const {
  const Member& short_one = *left_.front();
  const Collective* next = next_of(short_one);
  const Collective* last = next != nullptr ? next : short_one.at(seq_ - 1);
  if (auto site = site_of(*short_one.process, *last, finding.culprits.empty() ? "peer" : "culprit"))
    finding.sites.push_back(*site);
  const Member& peer = *stayed_.front();
  if (auto site = site_of(*peer.process, *peer.at(seq_), "peer"))
    finding.sites.push_back(*site);
}

Finding Parting::finding() const {
  const Collective& due = *stayed_.front()->at(seq_);
  const std::vector<std::string> all = codes();
  const bool ran_out = all.front() == "LS305";
  Finding finding;
  finding.code = all.front();
  finding.also.assign(all.begin() + 1, all.end());
  finding.headline = headline(ran_out);
  finding.affected = ranks_in(stayed_);
  const bool most_left = left_.size() > stayed_.size();
  for (const Rank rank : ranks_in(left_))
    (most_left ? finding.affected : finding.culprits).insert(rank);
  finding.group = group_.label();
  finding.op = std::string(history::name_of(due.op));
  finding.seq = seq_;
  finding.at_ns = due.issued_ns;
  finding.confidence = ran_out ? Confidence::kCertain : Confidence::kLikely;
  finding.cause = ran_out ? "it made fewer rounds than the others: it had fewer batches, skipped a "
                            "round (continue, an exception that was caught), or left the loop on a "
                            "condition of its own"
                          : "a condition that holds on this rank only ended its loop";
  if (most_left)
    finding.cause =
        "that most ranks left it does not tell whether they made too few rounds or the "
        "others too many";
  RanksByText lines;
  for (const Member& member : group_.members) {
    const Collective* next = next_of(member);
    add_rank(lines,
             fmt::format("{} rounds, then {}", rounds_of(member),
                         next == nullptr
                             ? std::string("its program ended")
                             : describe(*next) + at_site(site_of(*member.process, *next, "peer"))),
             member.rank);
  }
  for (const auto& [text, ranks] : lines)
    finding.evidence.push_back(fmt::format("{}: {}", words(ranks), text));
  add_sites(finding);
  return finding;
}

}  // namespace

std::optional<Repetition> repetition_before(const Member& member, std::uint64_t seq) {
  for (std::uint64_t period = 1; period <= kPeriodMax; ++period) {
    if (seq < member.first_seq + kRepetitionsMin * period)
      return std::nullopt;
    std::uint64_t begin = seq - period + 1;  // From here on each call comes again a period later.
    while (begin > member.first_seq && is_same_call(member, begin - 1, begin - 1 + period))
      --begin;
    if (seq - begin >= kRepetitionsMin * period)
      return Repetition{begin, period};
  }
  return std::nullopt;
}

Verdict LoopExit::check(const Run& run) const {
  Verdict verdict{.name = std::string(name())};
  if (!run.plan.scenario.empty()) {
    verdict.outcome = Outcome::kSkipped;
    verdict.reason = "the plan of the scenario says how many batches each rank has";
    return verdict;
  }
  if (run.live || !run.journal_complete)
    verdict.reason = run.live ? "the run goes on" : "LS901: the journal of the run is incomplete";
  std::optional<Finding> first;
  for (const GroupView& group : group_views(run, first_act_ns(run))) {
    if (group.members.size() < 2)
      continue;
    ++verdict.examined["groups"];
    const auto seq = first_difference(group);
    if (!seq || *seq == 0)
      continue;
    if (!known_before(group, *seq)) {
      verdict.reason = fmt::format("LS901: not all before {}#{} is known", group.label(), *seq);
      continue;
    }
    const Parting parting(run, group, *seq);
    if (!parting.is_an_exit())
      continue;
    Finding finding = parting.finding();
    if (!first || finding.at_ns < first->at_ns)
      first = std::move(finding);
  }
  if (first) {
    verdict.outcome = Outcome::kFail;
    verdict.findings.push_back(std::move(*first));
  } else if (verdict.reason.empty()) {
    verdict.outcome = Outcome::kPass;
  }
  return verdict;
}

}  // namespace lockstep::checkers
