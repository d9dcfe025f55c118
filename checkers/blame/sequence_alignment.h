// How one rank's sequence of calls relates to another's where they first disagree: a call too many,
// a call left out, two calls swapped, or just another call.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/model/group_view.h"
#include "harness/verdict/codes.h"

namespace lockstep::checkers {

/// A call, or the start of a request of the conversation. No call was left out across a request:
/// the rank answers one before it gets the next.
struct Token {
  const Collective* call{};  ///< Null: a request starts.
  std::uint64_t site{};      ///< site_key; 0 = not recorded.
};

/// The calls of a member around `seq` (at most `before` earlier and `after` later ones), with the
/// requests that its rank got in between. `position` is the index of the call `seq`, or
/// tokens.size() if it is not there.
struct TokenWindow {
  std::vector<Token> tokens{};
  std::size_t position{};
};
TokenWindow window_around(const Run& run, const Member& member, std::uint64_t seq,
                          std::size_t before, std::size_t after);

/// `code` is LS206, LS207, LS208, or empty where the sequences do not say; then `also` lists what
/// may be.
struct Explanation {
  Code code{};
  std::uint64_t calls{};    ///< Too many or left out.
  std::uint64_t matched{};  ///< Calls that agree after it.
  std::size_t back{};  ///< It began so many calls before: calls that look alike, from other lines.
  std::vector<Code> also{};
};

/// Explains `suspect` from `reference`, which is taken for right.
Explanation explain(const TokenWindow& suspect, const TokenWindow& reference);

/// Where `shorter`, alike up to there and then to the end of one of them, left out calls that
/// `longer` has; nothing if calls that it made too many would explain it as well.
std::optional<std::size_t> left_out(const std::vector<Token>& shorter,
                                    const std::vector<Token>& longer);

struct UsualNextCall {
  enum class Kind : std::uint8_t { kUnknown, kFollowed, kBroken };
  Kind kind{};
  const Collective* usual{};  ///< What came the last time, where it is known.
};

/// Whether the call at `position` is the one that always came, so far, after the context before it
/// (the last eight calls and their sites).
UsualNextCall usual_next_call(const TokenWindow& window);

}  // namespace lockstep::checkers
