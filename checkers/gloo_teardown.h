// A race of PyTorch that a program meets when it leaves without destroy_process_group: a worker
// thread of Gloo still holds a tensor when Python has ended, and std::terminate ends the process.
#pragma once

#include <string_view>

#include "harness/history/run.h"

namespace lockstep::checkers {

/// What std::terminate prints where no exception is under way.
inline constexpr std::string_view kTerminated = "terminate called without an active exception";

inline constexpr std::string_view kEndedInTeardown =
    "was ended by SIGABRT in Gloo's teardown: it left without destroy_process_group";
inline constexpr std::string_view kHelpWithTeardown =
    "call torch.distributed.destroy_process_group() before the program ends: a thread of Gloo may "
    "still hold a tensor when Python is gone (a race of PyTorch, which some runs win)";

/// The process aborted by std::terminate without an exception after everything that it ever issued
/// was complete.
bool ended_in_gloo_teardown(const Run& run, const ProcessEnd& end);

}  // namespace lockstep::checkers
