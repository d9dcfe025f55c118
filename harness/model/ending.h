// How a process ended, and who asked it to.
#pragma once

#include <cstdint>
#include <string_view>

#include "harness/history/run.h"

namespace lockstep {

/// What std::terminate prints where no exception is under way.
inline constexpr std::string_view kTerminated = "terminate called without an active exception";

/// What it prints where a thread waits for its own end: the last to let go of the group was Gloo's.
inline constexpr std::string_view kJoinedItself = "Resource deadlock avoided";

inline constexpr std::string_view kHelpWithTeardown =
    "call torch.distributed.destroy_process_group() before the program ends, and, where it is "
    "called, import torch.distributed.nn before init_process_group (imported later, as by DDP, it "
    "keeps the group): a thread of Gloo may still hold a tensor when Python is gone (a race of "
    "PyTorch, which most runs win)";

enum class Ended : std::uint8_t {
  kUnknown,  ///< Its status is not known.
  kCleanly,  ///< With status 0.
  kStatus,
  kSignal,
  /// A race of PyTorch that a program meets when a process group of Gloo lives until Python ends: a
  /// worker thread of it still holds a tensor then, and std::terminate ends the process. A group
  /// lives that long without destroy_process_group, but also where torch.distributed.nn was first
  /// imported (DDP does that) while the group was there: it is the default argument of its
  /// functions.
  kInGlooTeardown,
};

struct Ending {
  Ended how{};
  bool by_us{};  ///< A signal of ours had come.
  /// Somebody of the job asked it to end, and it did: by that signal, or by itself a while later,
  /// be it into that race on its way out.
  bool as_asked{};

  [[nodiscard]] bool failed_by_itself() const {
    return !by_us && how != Ended::kUnknown && how != Ended::kCleanly;
  }
  /// The program came to its end by itself: with status 0, or it would have, but for that race.
  [[nodiscard]] bool of_the_program() const {
    return !by_us && !as_asked && (how == Ended::kCleanly || how == Ended::kInGlooTeardown);
  }
};

Ending ending_of(const Run& run, const ProcessEnd& end);

/// Its process came to its end by itself.
bool came_to_its_end(const Run& run, Rank rank);

/// The job ended this rank by a signal when it had no more use for it, and then ended well itself.
bool was_meant(const Run& run, const ProcessEnd& end);

}  // namespace lockstep
