#include "checkers/order/loop_parting.h"

#include <algorithm>

#include "harness/model/call_site.h"
#include "harness/model/ending.h"
#include "harness/model/matching.h"

namespace lockstep::checkers {
LoopParting::LoopParting(const Run& run, const GroupView& group, std::uint64_t seq)
    : run_(run), group_(group), seq_(seq) {
  for (const Member& member : group.members) {
    const auto loop = repetition_before(member, seq);
    (loop ? stayed_ : left_).push_back(&member);
    if (loop)
      loop_ = *loop;
  }
  if (stayed_.empty()) {
    part_by_source();
    return;
  }
  all_have_left_ = !left_.empty() && all_stayed_in_one_loop();
  look_at_those_who_left();
}

bool LoopParting::is_an_exit(bool trouble_later) const {
  return all_have_left_ &&
         (trouble_later || std::any_of(stayed_.begin(), stayed_.end(), [&](const Member* member) {
            return cannot_go_on(*member);
          }));
}

void LoopParting::look_at_those_who_left() {
  for (const Member* member : left_) {
    const auto loops = all_have_left_ ? loops_left_by(*member) : std::nullopt;
    all_have_left_ = loops.has_value();
    if (loops)
      loops_left_.insert(loops->begin(), loops->end());
  }
}

void LoopParting::part_by_source() {
  stayed_.clear();
  left_.clear();
  std::set<Loop> round_again;
  for (const Member& member : group_.members) {
    const std::set<Loop> loops = runs_out_of(member);
    (loops.empty() ? left_ : stayed_).push_back(&member);
    if (loops.empty())
      continue;
    if (stayed_.size() == 1)
      round_again = loops;
    std::erase_if(round_again, [&](const Loop& loop) { return !loops.contains(loop); });
  }
  loop_ = {seq_ - 1, 1};
  by_source_ = true;
  all_have_left_ = !left_.empty() && !round_again.empty() && all_issued_alike();
  look_at_those_who_left();
  if (loops_left_.empty())  // They ended well.
    loops_left_ = round_again;
  std::erase_if(loops_left_, [&](const Loop& loop) { return !round_again.contains(loop); });
  all_have_left_ = all_have_left_ && !loops_left_.empty();
  if (all_have_left_)
    find_loop_line();
}

std::set<Loop> LoopParting::runs_out_of(const Member& member) const {
  const Collective* const last = member.at(seq_ - 1);
  const Collective* const next = member.at(seq_);
  std::set<Loop> loops;
  if (last == nullptr || next == nullptr)
    return loops;
  const auto around = came_round(frames_of(member, *last), frames_of(member, *next));
  for (const auto& [frame, loop] : around) {
    if (loop->runs_out)
      loops.insert(loop_of(*frame, *loop));
  }
  return loops;
}

bool LoopParting::all_issued_alike() const {
  const Member& first = group_.members.front();
  const Collective* const last = first.at(seq_ - 1);
  const Collective& next = *stayed_.front()->at(seq_);
  return last != nullptr && first.site_key(*last) != 0 &&
         std::all_of(group_.members.begin(), group_.members.end(),
                     [&](const Member& member) {
                       const Collective* const theirs = member.at(seq_ - 1);
                       return theirs != nullptr &&
                              member.site_key(*theirs) == first.site_key(*last);
                     }) &&
         std::all_of(stayed_.begin(), stayed_.end(),
                     [&](const Member* member) { return agree(next, *member->at(seq_)); });
}

bool LoopParting::all_stayed_in_one_loop() const {
  const Collective& next = *stayed_.front()->at(seq_);
  return std::all_of(stayed_.begin(), stayed_.end(), [&](const Member* member) {
    return repetition_before(*member, seq_)->period == loop_.period &&
           agree(next, *member->at(seq_));
  });
}

const Collective* LoopParting::next_of(const Member& member) const {
  if (const Collective* here = member.at(seq_))
    return here;
  const Collective* last = member.at(seq_ - 1);
  const auto& calls = member.process->collectives;
  const auto next = std::find_if(calls.begin(), calls.end(), [&](const Collective& call) {
    return last != nullptr && call.record > last->record;
  });
  return next == calls.end() ? nullptr : &*next;
}

std::optional<std::set<Loop>> LoopParting::loops_left_by(const Member& member) const {
  const Collective* next = next_of(member);
  if (next == nullptr)
    return came_to_its_end(run_, member.rank) ? std::optional(std::set<Loop>()) : std::nullopt;
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

bool LoopParting::in_same_rounds(const Member& member, const Collective& next,
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

std::optional<std::int64_t> LoopParting::round_of(const Member& peer, const Frame& like,
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

bool LoopParting::cannot_go_on(const Member& member) const {
  const Collective& call = *member.at(seq_);
  const bool meets_another = std::any_of(left_.begin(), left_.end(), [&](const Member* other) {
    const Collective* theirs = other->at(seq_);
    return theirs != nullptr && !agree(call, *theirs);
  });
  return meets_another || call.failed ||
         (!call.completed_ns && !came_to_its_end(run_, member.rank));
}

std::vector<Code> LoopParting::codes() const {
  if (by_source_)
    return {Code::kUnevenBatches, Code::kLeftLoop};
  if (!is_same_call(*stayed_.front(), loop_.begin, seq_))
    return {Code::kLeftLoop};
  const bool whole = (seq_ - loop_.begin) % loop_.period == 0;
  // With one call in the body, or the same call twice, it does not show where it was left.
  if (whole && loop_.period > 1)
    return {Code::kUnevenBatches};
  return {Code::kUnevenBatches, Code::kLeftLoop};
}

bool LoopParting::is_head(const Member& member, std::uint64_t seq) const {
  const Collective* const head = member.at(loop_.begin);
  const Collective* const call = member.at(seq);
  return call != nullptr && head != nullptr && agree(*head, *call) &&
         member.site_key(*call) == member.site_key(*head);
}

std::uint64_t LoopParting::rounds_of(const Member& member) const {
  if (by_source_)
    return rounds_by_source(member);
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

std::uint64_t LoopParting::rounds_by_source(const Member& member) const {
  std::uint64_t rounds = 1;
  const auto inside = [&](const Collective* call) {
    return call != nullptr && stands_in(frames_of(member, *call), {loop_line_});
  };
  for (std::uint64_t seq = seq_; seq > member.first_seq; --seq) {
    const Collective* const before = member.at(seq - 1);
    if (!inside(before))
      break;
    const Collective* const call = member.at(seq);
    const auto around = inside(call)
                            ? came_round(frames_of(member, *before), frames_of(member, *call))
                            : std::vector<std::pair<const Frame*, const SourceLoop*>>();
    if (around.empty())
      continue;
    // One line may issue several calls in a round, as DDP's forward does.
    if (seq != seq_ && member.site_key(*before) == member.site_key(*call))
      return 0;
    if (loop_of(*around.back().first, *around.back().second) != loop_line_)
      return 0;
    ++rounds;
  }
  return rounds;
}

bool LoopParting::all_made_their_rounds() const {
  return !by_source_ && loops_left_.size() == 1 &&
         std::all_of(left_.begin(), left_.end(),
                     [&](const Member* member) { return made_its_rounds(*member); });
}

bool LoopParting::made_its_rounds(const Member& member) const {
  const Collective* const next = next_of(member);
  const Member& peer = *stayed_.front();
  const Collective& due = *peer.at(seq_);
  if (next == nullptr)
    return false;
  const auto uses = [](const Frame& frame, const std::string& variable) {
    return std::count_if(frame.loops.begin(), frame.loops.end(),
                         [&](const SourceLoop& each) { return each.variable == variable; });
  };
  for (const Frame& frame : frames_of(peer, due)) {
    for (const SourceLoop& loop : frame.loops) {
      // (Behind a `break` the variable is where it was in the round that was left.)
      if (!loop.runs_out || loop.variable.empty() || !loops_left_.contains(loop_of(frame, loop)) ||
          uses(frame, loop.variable) != 1)
        continue;
      const auto theirs = round_at(run_, peer, due, frame, loop);
      const auto rounds = static_cast<std::int64_t>(rounds_of(peer));
      for (const Frame& own : frames_of(member, *next)) {
        const auto its = same_function(own, frame) && uses(own, loop.variable) == 0
                             ? round_at(run_, member, *next, own, loop)
                             : std::nullopt;
        if (its && theirs && *its >= *theirs && (rounds == *theirs + 1 || rounds == *theirs))
          return true;
      }
    }
  }
  return false;
}

void LoopParting::find_loop_line() {
  const Collective& call = *stayed_.front()->at(seq_);
  for (const Frame& frame : frames_of(*stayed_.front(), call)) {
    for (auto loop = frame.loops.rbegin(); loop != frame.loops.rend(); ++loop) {
      if (!loops_left_.contains(loop_of(frame, *loop)))
        continue;
      loop_line_ = loop_of(frame, *loop);
      loop_site_ = at_site(SiteRef{{}, "", frame.file, loop->line, ""});
      return;
    }
  }
}

}  // namespace lockstep::checkers
