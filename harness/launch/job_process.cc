#include "harness/launch/job_process.h"

#include <algorithm>
#include <csignal>

#include "harness/base/clock.h"
#include "harness/history/journal.h"
#include "harness/launch/lineage.h"
#include "harness/launch/supervisor.h"

namespace lockstep::launch {
namespace {

constexpr auto kEndLimit = std::chrono::milliseconds(2'500);
constexpr auto kGraceSlice = std::chrono::milliseconds(50);

}  // namespace

bool EndReport::clean() const {
  return std::all_of(leftovers.begin(), leftovers.end(),
                     [](const os::EndedProcess& process) { return process.gone; });
}

const SentSignal* JobProcess::ended_by() const {
  // Whoever fails is seen to have ended a little after its launcher saw it, and ended the others.
  constexpr std::uint64_t kMomentNs = 10'000'000;
  const auto is_it = [&](const SentSignal& signal) {
    const bool asked = signal.number == SIGTERM && signal.at_ns + kMomentNs < ended_ns;
    if (ended->signal)
      return *ended->signal == signal.number || (*ended->signal == SIGABRT && asked);
    return ended->exit_status && (asked || *ended->exit_status == 128 + signal.number);
  };
  const auto at = ended ? std::find_if(sent.begin(), sent.end(), is_it) : sent.end();
  return at == sent.end() ? nullptr : &*at;
}

void take_end(JobProcess& process, history::JournalWriter* journal) {
  process.ended = os::report_of_ended(process.process);
  if (process.status_says_nothing)
    process.ended = os::ExitReport{};
  process.ended_ns = now_ns();
  if (journal != nullptr)
    record_end(process, journal);
}

void record_end(const JobProcess& process, history::JournalWriter* journal) {
  ProcessEnd end{.at_ns = process.ended_ns,
                 .role = process.role,
                 .rank = process.rank,
                 .pid = process.process.pid(),
                 .exit_status = process.ended->exit_status,
                 .signal = process.ended->signal,
                 .last_line = process.last_line};
  if (const SentSignal* const by = process.ended_by()) {
    end.sender = sender_of(by->sender);
    end.asked_ns = process.sent.front().at_ns;
  }
  if (process.signalled) {
    end.our_signal = process.signalled->number;
    end.our_reason = process.signalled->reason;
  }
  // A record that cannot be written is seen as a gap, and JournalWriter::close() says it again.
  (void)journal->append(end);
}

JobProcess* JobEnding::find(const os::ProcessId& id) {
  const auto at = std::find_if(
      processes_.begin(), processes_.end(),
      [&](const JobProcess* process) { return process->lives() && process->process.id() == id; });
  return at == processes_.end() ? nullptr : *at;
}

void JobEnding::record_act(const char* action, const JobProcess* process, std::int32_t pid,
                           const std::string& reason) {
  if (journal_ == nullptr)
    return;
  (void)journal_->append(Acted{.at_ns = now_ns(),
                               .action = action,
                               .rank = process != nullptr ? process->rank : std::nullopt,
                               .pid = pid,
                               .reason = reason});
}

void JobEnding::ask(const std::string& reason, std::chrono::milliseconds grace,
                    const std::function<void()>& meanwhile) {
  const int interrupts = supervisor_.interrupts();
  for (JobProcess* process : processes_) {
    if (!process->lives() || process->process.ended())
      continue;
    record_act("TERM", process, process->process.pid(), reason);
    process->signalled = OurSignal{SIGTERM, reason};
    process->process.signal(SIGTERM);
  }
  const Clock::time_point deadline = Clock::now() + grace;
  for (JobProcess* process : processes_) {
    while (process->lives() && Clock::now() < deadline && supervisor_.interrupts() == interrupts &&
           !supervisor_.guard_died()) {
      if (process->process.wait_ended(std::min(deadline, Clock::now() + kGraceSlice)))
        break;
      if (meanwhile)
        meanwhile();
    }
  }
}

// Written before it is done, so that what follows from it can never be taken for a finding.
void JobEnding::before_kill(const os::ProcessStat& process, const std::string& reason) {
  JobProcess* ours = find(process.id);
  record_act("KILL", ours, process.id.pid,
             ours != nullptr ? reason : "left behind: " + process.name);
  if (ours != nullptr)
    ours->signalled = OurSignal{SIGKILL, reason};
  if ((ours == nullptr || ours->orphan) && journal_ != nullptr)
    (void)journal_->append(lineage_.describe(process));
}

void JobEnding::reap(const os::ProcessStat& zombie) {
  if (JobProcess* ours = find(zombie.id))
    take_end(*ours, journal_);
  else
    os::reap_pid_if_ended(zombie.id.pid);
}

EndReport JobEnding::kill(const std::string& reason) {
  const os::EndHooks hooks{
      .before_kill = [&](const os::ProcessStat& process) { before_kill(process, reason); },
      .reap = [&](const os::ProcessStat& zombie) { reap(zombie); },
  };
  EndReport report;
  for (os::EndedProcess& process :
       os::end_everything(supervisor_.family(), Clock::now() + kEndLimit, hooks)) {
    const bool ours = std::any_of(processes_.begin(), processes_.end(), [&](const JobProcess* p) {
      return p->process.id() == process.id && !p->orphan;
    });
    // One of the job's own that outlives KILL is named; an orphan that had ended by itself only
    // wanted reaping.
    if (ours ? !process.gone : process.state != 'Z')
      report.leftovers.push_back(std::move(process));
  }
  for (JobProcess* process : processes_) {
    if (process->lives() && process->process.ended())
      take_end(*process, journal_);  // Reaped by its own parent.
  }
  return report;
}

}  // namespace lockstep::launch
