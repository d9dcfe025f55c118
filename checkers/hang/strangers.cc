#include "checkers/hang/strangers.h"

#include <fmt/format.h>

#include <algorithm>

#include "checkers/hang/rendezvous.h"
#include "harness/history/hosts.h"
#include "harness/model/group_view.h"

namespace lockstep::checkers {
namespace {

const Process* with_a_group(const Run& run, const Stranger& stranger) {
  const auto process =
      std::find_if(run.processes.begin(), run.processes.end(), [&](const Process& each) {
        return each.pid == stranger.pid && each.rank && !each.groups.empty() &&
               each.groups.front().size > 1;
      });
  return process == run.processes.end() ? nullptr : &*process;
}

std::uint64_t ended_ns(const Run& run, const Process& process) {
  for (const ProcessEnd& end : run.ends) {
    if (end.pid == process.pid && end.at_ns > process.opened_ns)
      return end.at_ns;
  }
  return kNeverNs;
}

/// A process of this rank was in a group while that one was there.
bool was_there(const Run& run, Rank rank, const Process& with) {
  return std::any_of(run.processes.begin(), run.processes.end(), [&](const Process& process) {
    return (process.rank == rank || process.beside == rank) && !process.groups.empty() &&
           process.opened_ns <= ended_ns(run, with) && ended_ns(run, process) >= with.opened_ns;
  });
}

/// Its last process never came into this group: it was in another one, waits for one, or has
/// failed.
bool never_came(const Run& run, Rank rank) {
  const std::int32_t pid = pid_of(run, rank);
  if (std::any_of(run.processes.begin(), run.processes.end(), [&](const Process& process) {
        return process.rank == rank && !process.groups.empty();
      }))
    return true;
  const auto before = before_its_group(run, rank, first_act_ns(run));
  const bool waits = before && before->joining_since_ns;
  return pid != 0 && (waits || std::any_of(run.ends.begin(), run.ends.end(), [&](const auto& end) {
                        return end.pid == pid && end.failed() && !end.our_signal;
                      }));
}

std::string in_words(const Stranger& stranger) {
  return stranger.other == 0
             ? stranger.name
             : fmt::format("{} ({})", history::words_of_pid(stranger.other), stranger.name);
}

}  // namespace

void tell_strangers(const Run& run, const RankSet& ranks, Finding& finding) {
  for (const Stranger& stranger : run.strangers) {
    if (stranger.rank && ranks.contains(*stranger.rank))
      finding.tell(EvidenceKind::kProcess, {*stranger.rank},
                   "rank {} is connected, at {}, to {}, which is no process of this job",
                   stranger.rank->value, stranger.address, in_words(stranger));
  }
}

std::optional<Finding> met_another_job(const Run& run) {
  for (const Stranger& stranger : run.strangers) {
    const Process* const process = with_a_group(run, stranger);
    if (process == nullptr)
      continue;
    RankSet replaced;
    for (const Rank rank : RankSet::all(process->groups.front().size)) {
      if (rank != *process->rank && !was_there(run, rank, *process) && never_came(run, rank))
        replaced.insert(rank);
    }
    if (replaced.empty())
      continue;
    Finding finding;
    finding.code = Code::kNeverJoined;
    finding.confidence = Confidence::kCertain;
    finding.at_ns = stranger.at_ns;
    for (const ProcessEnd& end : run.ends) {  // A failure of its own is why it never came.
      if (end.rank && replaced.contains(*end.rank))
        finding.at_ns = std::max(finding.at_ns, end.at_ns + 1);
    }
    finding.affected = ranks_of(run);
    finding.headline = fmt::format("the peer of rank {} is no process of this job: {}",
                                   process->rank->value, in_words(stranger));
    finding.tell(EvidenceKind::kProcess, {*process->rank}, "they met at {}", stranger.address);
    finding.tell(EvidenceKind::kGroup, {*process->rank},
                 "rank {} was in a group of {} ranks, and issued {} collectives there",
                 process->rank->value, process->groups.front().size,
                 process->groups.front().issued);
    finding.tell(EvidenceKind::kGroup, replaced, "{} of this job never came into it",
                 words(replaced));
    finding.cause = "two jobs use one MASTER_ADDR and MASTER_PORT";
    finding.help =
        "give each job a port of its own; lockstep run -n and torchrun --standalone pick a free "
        "one";
    return finding;
  }
  return std::nullopt;
}

}  // namespace lockstep::checkers
