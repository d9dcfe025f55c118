// How ranks failed: what each one's first sign was, and which of them only noticed another one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/history/run.h"
#include "harness/model/ending.h"
#include "harness/model/group_view.h"
#include "harness/verdict/verdict.h"

namespace lockstep {

/// The first sign that a rank failed.
struct Failure {
  Rank rank{};
  std::uint64_t at_ns{};
  Ended how{};              ///< Unknown for one that raised.
  std::int32_t status{};    ///< Or the signal.
  std::string exception{};  ///< Its text, for one that raised.
  bool after_a_peer{};      ///< Its own evidence says that another rank was gone or silent first.
  bool aborted{};           ///< SIGABRT: how C++ programs end on an error of the transport.
  std::optional<Sender> ended_by{};  ///< Who asked it to end; of pid 0 where nobody was seen to.
  std::optional<SiteRef> raised{};
  std::string found_out{};         ///< What was found out about it at once.
  std::vector<Evidence> waited{};  ///< In which call it had waited for whom, and where those were.
};

/// One for each rank that failed by itself, whoever failed for a reason of its own first, then by
/// time.
std::vector<Failure> failures_of(const Run& run, const std::vector<GroupView>& groups);

/// "was killed by SIGKILL"; of several, "were".
std::string in_words(const Failure& failure, std::size_t ranks = 1);

EvidenceKind kind_of(const Failure& failure);

/// One mistake made on both: the same exception; or, raised on the same line, with other numbers in
/// its text.
bool is_one_mistake(const Failure& a, const Failure& b);

/// Of ranks that all say what they and another one have ("Rank 0 has 4 params, while rank 2 has
/// inconsistent 2"): who says otherwise than most. Empty where that is not what they say.
RankSet odd_ones_out(const std::vector<Failure>& failures);

/// The exception that ended a thread of Python's in this process, where nobody caught it; null:
/// none did up to the cutoff.
const Raised* end_of_a_thread(const Run& run, std::int32_t pid, std::uint64_t cutoff_ns);

/// As evidence, and its line as a site "raised".
void tell_end_of_a_thread(Finding& finding, Rank rank, const Raised& raised);

/// For a headline.
std::string first_line(const std::string& text);

}  // namespace lockstep
