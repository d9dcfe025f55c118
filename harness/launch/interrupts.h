// SIGINT, SIGTERM and SIGHUP of the supervisor. The first is a wish to end in good order and can be
// asked for; the second ends the process at once with 130, whatever it is busy with: its guard then
// ends the job.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace lockstep::launch {

inline constexpr int kExitInterrupted = 130;

/// Takes the three signals over. `event_fd` is written to (8 bytes) at each. `guard` forwards
/// signals that only it received; of a signal that reached both directly, the forwarded twin is
/// dropped.
void take_interrupts(int event_fd, pid_t guard);

/// The guard died: a second signal only counts from now on.
void forget_guard();

int interrupts_so_far();
/// "SIGINT"; empty when there was none.
std::string first_interrupt();
/// When it came, CLOCK_MONOTONIC; 0 when there was none.
std::uint64_t first_interrupt_ns();
/// By a key of the terminal, or by kill(2) of our process group: not the guard alone was asked.
bool whole_group_was_interrupted();

}  // namespace lockstep::launch
