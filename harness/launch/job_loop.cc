#include "harness/launch/job_loop.h"

#include "harness/os/poll_until.h"

namespace lockstep::launch {

std::optional<std::string> JobLoop::new_interrupt() {
  std::string why = supervisor_.interrupted();
  if (why.empty())
    return std::nullopt;
  const int count = supervisor_.interrupts();
  const bool guard_death = supervisor_.guard_died();
  if (count <= interrupts_told_ && (!guard_death || guard_death_told_))
    return std::nullopt;
  interrupts_told_ = count;
  guard_death_told_ = guard_death;
  return why;
}

bool JobLoop::wait(const std::vector<const os::ProcessHandle*>& living, std::vector<pollfd>& others,
                   Clock::time_point until) {
  const std::size_t count = others.size();
  const auto add = [&](int fd) { others.push_back({.fd = fd, .events = POLLIN, .revents = 0}); };
  for (const os::ProcessHandle* const process : living)
    add(process->pidfd());
  add(supervisor_.interrupt_fd());
  if (supervisor_.guard_fd() >= 0 && !guard_death_told_)
    add(supervisor_.guard_fd());
  const bool happened = ::poll(others.data(), others.size(), os::poll_timeout_ms(until)) > 0;
  others.resize(count);
  if (happened)
    supervisor_.drain_interrupt_fd();
  return happened;
}

}  // namespace lockstep::launch
