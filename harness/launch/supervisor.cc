#include "harness/launch/supervisor.h"

#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "harness/launch/interrupts.h"
#include "harness/launch/job_file.h"

namespace lockstep::launch {

Result<std::unique_ptr<Supervisor>> Supervisor::make(std::string job_id,
                                                     std::shared_ptr<CleanupPage> cleanup) {
  std::unique_ptr<Supervisor> supervisor(new Supervisor());
  supervisor->job_id_ = std::move(job_id);
  supervisor->cleanup_ = std::move(cleanup);
  // So that ranks whose intermediate parent exits, and whatever they leave behind, become our
  // children.
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
    return Error{Error::Kind::kEnvironment,
                 std::string("cannot become a subreaper: ") + std::strerror(errno), ""};
  ::setenv(kJobMarker, supervisor->job_id_.c_str(), 1);
  supervisor->interrupt_event_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  return supervisor;
}

Result<std::unique_ptr<Supervisor>> Supervisor::unguarded() {
  Result<std::shared_ptr<CleanupPage>> cleanup = CleanupPage::create();
  if (!cleanup)
    return cleanup.error();
  return make(os::unique_id(), std::move(*cleanup));
}

Supervisor::~Supervisor() = default;

bool Supervisor::guard_died() {
  if (guard_ && !guard_dead_ && guard_.ended()) {
    guard_dead_ = true;
    forget_guard();
  }
  return guard_dead_;
}

std::string Supervisor::interrupted() {
  return guard_died() ? "the guard was killed" : first_interrupt();
}

void Supervisor::drain_interrupt_fd() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(interrupt_event_.get(), &count, sizeof count);
}

int Supervisor::interrupts() const { return interrupts_so_far(); }

Result<CleanupPage::Handle> Supervisor::remove_at_end(const std::string& path) {
  return cleanup_->add(CleanupPage::Kind::kRemove, path);
}

Result<CleanupPage::Handle> Supervisor::rescue_at_death(const std::string& live_directory,
                                                        const std::string& destination) {
  return cleanup_->add(CleanupPage::Kind::kRescue, live_directory, destination);
}

Result<CleanupPage::Handle> Supervisor::announce_run(const std::string& run_directory) {
  Result<UniqueFd> file = create_job_file(run_directory, job_id_);
  if (!file)
    return file.error();
  job_file_ = std::move(*file);
  ::setenv(kRunMarker, run_directory.c_str(), 1);
  return cleanup_->add(CleanupPage::Kind::kRun, run_directory);
}

void Supervisor::keep(const os::ProcessHandle& process) { kept_.push_back(process.id()); }

void Supervisor::release(const os::ProcessHandle& process) { std::erase(kept_, process.id()); }

Result<void> Supervisor::let_live(const os::ProcessId& process) {
  kept_.push_back(process);
  if (job_file_) {
    if (auto noted = note_survivor(job_file_, process); !noted)
      return noted;
  }
  return cleanup_->add_spared(process);
}

os::Family Supervisor::family() const {
  return {
      .ancestor = ::getpid(), .marker = std::string(kJobMarker) + "=" + job_id_, .spared = kept_};
}

}  // namespace lockstep::launch
