// The end of a case: TERM and grace where asked for, then everything of the job, then the proof.
#include <algorithm>
#include <csignal>

#include "harness/launch/host_job_impl.h"

namespace lockstep::launch {
namespace {

constexpr auto kEndLimit = std::chrono::milliseconds(2'500);
constexpr auto kGraceSlice = std::chrono::milliseconds(50);

}  // namespace

bool EndReport::clean() const {
  return std::all_of(leftovers.begin(), leftovers.end(),
                     [](const os::EndedProcess& process) { return process.gone; });
}

void HostJob::Impl::collect(HostProcess& host) {
  const Result<std::optional<os::ExitReport>> report = os::reap_if_ended(host.process.pidfd());
  host.shown.ended = report && *report ? **report : os::ExitReport{};
  ProcessEnd end{.at_ns = now_ns(),
                 .role = host.shown.role,
                 .rank = host.shown.rank,
                 .pid = host.shown.pid,
                 .exit_status = host.shown.ended->exit_status,
                 .signal = host.shown.ended->signal};
  if (host.signalled) {
    end.our_signal = host.signalled->number;
    end.our_reason = host.signalled->reason;
  }
  record(end);
}

HostProcess* HostJob::Impl::host_of(const os::ProcessId& id) {
  const auto at = std::find_if(hosts_.begin(), hosts_.end(), [&](const HostProcess& host) {
    return host.lives() && host.process.id() == id;
  });
  return at == hosts_.end() ? nullptr : &*at;
}

// TERM, then time to end in good order, cut short by a second interrupt or the guard's death.
void HostJob::Impl::ask_to_end(const std::string& reason) {
  const int interrupts = supervisor_.interrupts();
  for (HostProcess& host : hosts_) {
    if (!host.lives() || host.process.ended())
      continue;
    record_act("TERM", &host, host.shown.pid, reason);
    host.signalled = OurSignal{SIGTERM, reason};
    host.process.signal(SIGTERM);
  }
  const Clock::time_point deadline = Clock::now() + options_.grace;
  for (HostProcess& host : hosts_) {
    while (host.lives() && Clock::now() < deadline && supervisor_.interrupts() == interrupts &&
           !supervisor_.guard_died()) {
      if (host.process.wait_ended(std::min(deadline, Clock::now() + kGraceSlice)))
        break;
    }
  }
}

// Written before it is done, so that what follows from it can never be taken for a finding.
void HostJob::Impl::before_kill(const os::ProcessStat& process, const std::string& reason) {
  HostProcess* host = host_of(process.id);
  record_act("KILL", host, process.id.pid,
             host != nullptr ? reason : "left behind: " + process.name);
  if (host != nullptr)
    host->signalled = OurSignal{SIGKILL, reason};
}

void HostJob::Impl::reap_child(const os::ProcessStat& zombie) {
  if (HostProcess* host = host_of(zombie.id))
    collect(*host);
  else
    os::reap_pid_if_ended(zombie.id.pid);
}

EndReport HostJob::Impl::end(const std::string& reason, How how) {
  ended_ = true;
  if (how == How::kTerm)
    ask_to_end(reason);
  const os::EndHooks hooks{
      .before_kill = [&](const os::ProcessStat& process) { before_kill(process, reason); },
      .reap = [&](const os::ProcessStat& zombie) { reap_child(zombie); },
  };
  std::vector<os::ProcessId> host_ids;
  for (const HostProcess& host : hosts_)
    host_ids.push_back(host.process.id());
  EndReport report;
  for (os::EndedProcess& process :
       os::end_everything(supervisor_.family(), Clock::now() + kEndLimit, hooks)) {
    const bool is_host = std::find(host_ids.begin(), host_ids.end(), process.id) != host_ids.end();
    // A host that outlives KILL is named; an orphan that had ended by itself only wanted reaping.
    if (is_host ? !process.gone : process.state != 'Z')
      report.leftovers.push_back(std::move(process));
  }
  for (std::size_t i = 0; i < hosts_.size(); ++i)
    shown_[i] = hosts_[i].shown;
  bound_logs();
  return report;
}

}  // namespace lockstep::launch
