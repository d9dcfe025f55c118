// What a process said on stderr before it ended: the exception that it died of, if it printed one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/history/run.h"
#include "harness/launch/job_process.h"

namespace lockstep::launch {

struct LastWords {
  std::string text{};    ///< "ValueError: bad batch"; "what():" of a C++ exception.
  CallSite raised_at{};  ///< Innermost frame first; file, line and function only.
};

/// From the end of its stderr: the last Python traceback, or what std::terminate printed. None if
/// there is neither.
std::optional<LastWords> last_words(std::string_view stderr_tail);

/// Its last line that is not blank and of no warning, cut to what a finding can hold.
std::string last_line(std::string_view stderr_tail);

/// The stderr of a process, as far as it is known.
struct ErrorTail {
  std::string text{};
  std::uint64_t at_ns{};  ///< When the last of it came.
};

/// What the shim (harness/tap/shim_end.c) kept of a stderr that a launcher of the user's holds.
/// None if the process never loaded LibTorch, or said nothing since.
std::optional<ErrorTail> kept_error_tail(const std::string& history_directory, std::int32_t pid);

/// What a process raised that was gone before anybody looked, as far as that is kept.
std::optional<Raised> kept_last_words(const std::string& history_directory, std::int32_t pid,
                                      Rank rank);

/// A library ended the process, with a status that is not 0: its status says nothing of the
/// program. (The workers of a pool end so, when their launcher has no more use for them.)
bool a_library_ended(const std::string& history_directory, std::int32_t pid);

/// The signals that end which somebody of the job was seen to send the process, or the process
/// group that it leads or is in; by time.
std::vector<SentSignal> sent_signals(const std::string& history_directory, std::int32_t pid);

/// The process of torch.multiprocessing.spawn whose exception its parent passes on: its index, as a
/// rule its rank.
std::optional<std::int32_t> spawned_index(std::string_view stderr_tail);

/// Of an exception that says that an address is in use, and names the port: who listens there.
/// Empty where it is about something else, or nobody is seen to.
std::string who_holds_the_port(std::string_view text);

}  // namespace lockstep::launch
