// The guard: what the shell waits for. It forks the supervisor before any thread exists and does
// nothing but watch it; when the supervisor dies, it ends everything of the job and removes what
// must not be left.
#pragma once

#include <functional>

#include "harness/launch/supervisor.h"

namespace lockstep::launch {

/// /proc is that of our pid namespace. Else its pids would be those of strangers, and we end
/// processes by what it says.
bool proc_is_ours();

/// Runs `body` in a supervised child and returns what the process should exit with. To be called
/// from main, before any thread exists and before anything is started.
///
/// Returns: what `body` returned; 2 when the supervisor was killed (a message names the signal);
/// 134 when it aborted or crashed, which is a bug of ours; 130 when it was interrupted twice.
/// Whatever the supervisor's end: nothing of the job lives 3 s later (processes in uninterruptible
/// sleep are named). If the guard itself is killed, Supervisor::interrupted() says so and the
/// supervisor ends the job.
int run_guarded(const std::function<int(Supervisor&)>& body);

}  // namespace lockstep::launch
