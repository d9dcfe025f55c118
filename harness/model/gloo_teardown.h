// A race of PyTorch that a program meets when a process group of Gloo lives until Python ends: a
// worker thread of it still holds a tensor then, and std::terminate ends the process. A group lives
// that long without destroy_process_group, but also where torch.distributed.nn was first imported
// (DDP does that) while the group was there: it is the default argument of its functions.
#pragma once

#include <string_view>

#include "harness/history/run.h"

namespace lockstep {

/// What std::terminate prints where no exception is under way.
inline constexpr std::string_view kTerminated = "terminate called without an active exception";

/// What it prints where a thread waits for its own end: the last to let go of the group was Gloo's.
inline constexpr std::string_view kJoinedItself = "Resource deadlock avoided";

inline constexpr std::string_view kEndedInTeardown =
    "was ended by SIGABRT in Gloo's teardown: its process group outlived Python";
inline constexpr std::string_view kHelpWithTeardown =
    "call torch.distributed.destroy_process_group() before the program ends, and, where it is "
    "called, import torch.distributed.nn before init_process_group (imported later, as by DDP, it "
    "keeps the group): a thread of Gloo may still hold a tensor when Python is gone (a race of "
    "PyTorch, which most runs win)";

/// A thread of Gloo asked for Python, which ends whatever thread asks once it is finalized, and
/// that passed through a destructor; or it destroyed the group, which waits for its threads. Where
/// that stack was not seen: std::terminate said the one or the other, after everything that the
/// process ever issued was complete. It had raised nothing before.
bool ended_in_gloo_teardown(const Run& run, const ProcessEnd& end);

/// Somebody of the job asked it to end, and it did: by that signal, or by itself a while later, be
/// it into that race on its way out.
bool ended_as_asked(const Run& run, const ProcessEnd& end);

/// The program came to its end by itself: with status 0, or it would have, but for that race.
bool came_to_its_end(const Run& run, const ProcessEnd& end);

}  // namespace lockstep
