// Where ranks parted at a loop: who stayed in it, who left it, after how many rounds, and whether a
// round of theirs lacked its calls.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkers/order/loop_exit.h"
#include "harness/model/source_loops.h"
#include "harness/verdict/codes.h"

namespace lockstep::checkers {

/// A group at the place where ranks may have parted: those that went on with their repetition, and
/// those that did not.
class LoopParting {
 public:
  LoopParting(const Run& run, const GroupView& group, std::uint64_t seq);

  /// `trouble_later`: what the others issued here found a partner, and a later one did not.
  [[nodiscard]] bool is_an_exit(bool trouble_later) const;

  [[nodiscard]] Finding finding() const;

 private:
  void look_at_those_who_left();

  /// After a single round, or where the second one begins otherwise than the first, there is no
  /// repetition. Who came round again in a loop shows by its lines; who is behind it made no more
  /// rounds if nothing in its body leaves it.
  void part_by_source();

  /// Loops without a way out that its call came round in; an outer one may be the one.
  [[nodiscard]] std::set<Loop> runs_out_of(const Member& member) const;

  /// The last call before the place, from one line, and those who stayed the one at the place.
  [[nodiscard]] bool all_issued_alike() const;

  [[nodiscard]] bool all_stayed_in_one_loop() const;

  /// What it issued after the calls that all issued, in this group or else in another one; null if
  /// nothing.
  [[nodiscard]] const Collective* next_of(const Member& member) const;

  /// Loops that all its repeated calls stand in and that its next one is behind, while the others
  /// are in the same rounds of those around both; empty if it ended well instead. Nothing: it may
  /// not have left.
  [[nodiscard]] std::optional<std::set<Loop>> loops_left_by(const Member& member) const;

  /// As the variables of these loops tell; a variable that two loops use tells nothing.
  [[nodiscard]] bool in_same_rounds(const Member& member, const Collective& next,
                                    const Whereabouts& now) const;

  /// That of one who stayed, whose call stands elsewhere in the same function.
  [[nodiscard]] std::optional<std::int64_t> round_of(const Member& peer, const Frame& like,
                                                     const SourceLoop& loop) const;

  /// Its next call found no partner.
  [[nodiscard]] bool cannot_go_on(const Member& member) const;

  /// The first one, and what it may be as well where the calls alone cannot tell.
  [[nodiscard]] std::vector<Code> codes() const;

  /// By its own lines: ranks may have come there by different ways.
  [[nodiscard]] bool is_head(const Member& member, std::uint64_t seq) const;

  /// How often this rank came to the first call of the loop, the place of parting included, since
  /// the others came into it; a body may issue the same call several times.
  [[nodiscard]] std::uint64_t rounds_of(const Member& member) const;

  /// How often its calls came round in the innermost of the loops; 0 if that is not known.
  [[nodiscard]] std::uint64_t rounds_by_source(const Member& member) const;

  /// Their loop's variable has come as far as that of those who stayed, one call a round: they left
  /// it as they should, and a round of theirs lacked its calls.
  [[nodiscard]] bool all_made_their_rounds() const;

  [[nodiscard]] bool made_its_rounds(const Member& member) const;

  /// The innermost of the loops that were left, in the frames of one who stayed.
  void find_loop_line();

  [[nodiscard]] std::string headline(bool ran_out) const;
  void add_sites(Finding& finding) const;

  const Run& run_;
  const GroupView& group_;
  std::uint64_t seq_;
  Repetition loop_{};
  std::vector<const Member*> stayed_{}, left_{};
  bool all_have_left_{};
  bool by_source_{};  ///< As lines show, and not by the repetition of calls.
  std::set<Loop> loops_left_{};
  Loop loop_line_{};  ///< Where it shows by source.
  std::string loop_site_{};
};

}  // namespace lockstep::checkers
