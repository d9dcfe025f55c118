// Which loops of a Python source a line stands in: what tells a call after a loop from one inside.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "harness/history/run.h"

namespace lockstep::symbols {

/// Where the statements of a source begin, so that many lines of it can be looked up.
class PythonSource {
 public:
  explicit PythonSource(std::string_view text);

  /// The `for` and `while` statements around a line, within its function, outermost first.
  /// The line of such a statement belongs to its own loop. Empty: none, or there is no such line.
  [[nodiscard]] std::vector<SourceLoop> loops_around(std::int32_t line) const;

  /// In the block of a `finally` of its function.
  [[nodiscard]] bool in_finally(std::int32_t line) const;

 private:
  enum class Kind : std::uint8_t { kOther, kLoop, kScope, kFinally };
  struct Statement {
    std::int32_t line{};
    std::int32_t indent{};
    Kind kind{};
    std::string variable{};  ///< Of a `for`.
    bool leaves{};           ///< It has a `break` or a `return`.
  };

  static Statement statement_of(std::string_view text, std::int32_t line, std::int32_t indent);
  /// The statements that a line stands in, within its function, innermost first.
  [[nodiscard]] std::vector<std::vector<Statement>::const_iterator> around(std::int32_t line) const;
  /// Nothing in the body of this `for` leaves it before its rounds are over.
  [[nodiscard]] bool runs_out(std::vector<Statement>::const_iterator loop) const;

  std::vector<Statement> statements_{};  ///< Ascending by line.
  std::int32_t lines_{};
};

}  // namespace lockstep::symbols
