// One finding, or one undecided case, as a block of text. Used by human.cc and by JUnit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/report/human.h"
#include "harness/verdict/report.h"

namespace lockstep::report {

enum class Paint : std::uint8_t { kPlain, kBad, kGood, kDoubt, kDim, kStrong };

/// Text in color, where color is wanted.
std::string painted(std::string_view text, Paint paint, const HumanOptions& options);

/// Builds a block: a headline, then labelled lines whose text starts in one column.
class Block {
 public:
  explicit Block(const HumanOptions& options) : options_(options) {}

  /// `sign` is painted: "error[LS301]: ", then the headline.
  void headline(std::string_view sign, Paint paint, std::string_view text);
  /// A labelled text, wrapped. Nothing for an empty text.
  void line(std::string_view label, std::string_view text);
  /// A labelled list, the label at its first line; at most `shown_max` lines, the rest counted.
  void list(std::string_view label, const std::vector<std::string>& texts, std::size_t shown_max);

  /// A labelled shell command; where it takes more than one line it can still be copied and run.
  void command(std::string_view label, std::string_view text);

  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  void labelled(std::string_view label, std::string_view line);
  [[nodiscard]] std::size_t room() const;

  const HumanOptions& options_;
  std::string text_{};
};

/// `result` is the case the finding belongs to, null outside of a suite.
std::string finding_block(const Finding& finding, const CaseReport* result, std::int32_t world_size,
                          const HumanOptions& options);

std::string undecided_block(const CaseReport& result, const HumanOptions& options);

/// "all_reduce dp#1291"; "dp#1291" without the operation.
std::string operation_text(const Finding& finding, bool with_op);

/// "NAME not caught: expected LS208 by rank 1, got LS301 by rank 2".
std::string missed_mutant(const MutantResult& mutant);

/// A line begins with the reason, so that the reason need not be said too. True of an empty reason.
bool said_by(std::string_view reason, const std::vector<std::string>& lines);

/// The command that runs one case of a suite again.
std::string rerun_command(const CaseReport& result, const HumanOptions& options);

}  // namespace lockstep::report
