// Progress of a suite while it runs: one line per case, and on a terminal a last line that is
// rewritten.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "harness/report/human.h"

namespace lockstep {

/// Writes what human_case() says when a case ends, so the lines are those of the saved report. Used
/// by one thread.
class LiveProgress {
 public:
  using Sink = std::function<void(std::string_view)>;

  /// `rewrite`: the sink is a terminal that can move its cursor (Surroundings::terminal and TERM
  /// not "dumb").
  LiveProgress(Sink sink, HumanOptions options, bool rewrite, std::size_t case_count);

  /// A case runs, `elapsed_s` after the start of the suite. Call it again for the clock to go on.
  /// Off a terminal it says something only after a minute of silence.
  void running(std::string_view id, double elapsed_s);
  void finished(const CaseReport& result, double elapsed_s);
  /// Takes the rewritten line away. Before anything else is written, and at the end.
  void pause();

 private:
  [[nodiscard]] std::string running_line(std::string_view id, double elapsed_s) const;

  Sink sink_;
  HumanOptions options_;
  bool rewrite_{};
  bool shown_{};
  std::size_t case_count_{};
  std::size_t finished_{};
  std::size_t failed_{};
  std::size_t undecided_{};
  double last_written_s_{};
};

}  // namespace lockstep
