// Which loops of a C++ source a line stands in: what tells a call after a loop from one inside.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "harness/history/run.h"

namespace lockstep::symbols {

/// Where the loops of a source begin and end, so that many lines of it can be looked up. Read as
/// text: a loop that a macro makes is none.
class CppSource {
 public:
  /// Nothing is known of a source whose brackets do not match (both sides of an #if, for example).
  explicit CppSource(std::string_view text);

  /// The `for`, `while` and `do` statements around a line, within its function or lambda, outermost
  /// first. The line of such a statement belongs to its own loop, and a line on which a lambda
  /// begins or ends to what is around it.
  [[nodiscard]] std::vector<SourceLoop> loops_around(std::int32_t line) const;

 private:
  class Parser;
  struct Extent {
    std::int32_t first{};
    std::int32_t last{};
    bool is_loop{};  ///< Else the body of a lambda or of a class.
  };

  std::vector<Extent> extents_{};  ///< Ascending by first, outer ones before inner ones.
};

}  // namespace lockstep::symbols
