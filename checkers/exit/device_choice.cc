#include "checkers/exit/device_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "harness/history/hosts.h"
#include "harness/model/call_site.h"
#include "harness/model/group_view.h"

namespace lockstep::checkers {
namespace {

/// Null: it is no rank. A launcher sets the variable for its children.
const Process* rank_process(const Run& run, std::int32_t pid) {
  const auto at =
      std::find_if(run.processes.begin(), run.processes.end(), [&](const Process& process) {
        return process.pid == pid && process.rank && !process.groups.empty();
      });
  return at == run.processes.end() ? nullptr : &*at;
}

Finding chosen_too_late(const LateDevices& late, Rank rank) {
  Finding finding;
  finding.code = Code::kDevices;
  finding.severity = Severity::kWarning;
  finding.at_ns = late.at_ns;
  finding.culprits = {rank};
  finding.confidence = Confidence::kCertain;
  const auto site = site_of(rank, late.site.frames, "culprit");
  finding.headline = fmt::format(
      "rank {} changed CUDA_VISIBLE_DEVICES to {}{} after CUDA had been initialised: it keeps {}",
      rank.value, late.set, at_site(site), late.in_force);
  finding.tell(EvidenceKind::kResource, {rank},
               "CUDA_VISIBLE_DEVICES of {}: {} when it was started, {} "
               "when CUDA was initialised, {} at last",
               history::words_of_pid(late.pid), late.at_start, late.in_force, late.set);
  finding.help = "set it before the process starts, or before the first call that initialises CUDA";
  finding.add(site);
  return finding;
}

/// Ranks that share some of the GPUs may mean to; that all of a host work on its first one, and
/// there would be one for each, is what comes of no choice at all.
std::optional<Finding> never_chosen(const Run& run) {
  std::map<std::string, std::vector<const Process*>> by_host;
  for (const Rank rank : ranks_of(run)) {
    const Process* const process = current_process(run, rank);
    if (process != nullptr && !process->groups.empty())
      by_host[process->boot_id].push_back(process);
  }
  for (const auto& host_and_processes : by_host) {
    const std::vector<const Process*>& processes = host_and_processes.second;
    const std::optional<Device>& first = processes.front()->device;
    const bool on_one =
        std::all_of(processes.begin(), processes.end(), [&](const Process* process) {
          return first && process->device && process->device->uuid == first->uuid &&
                 process->device->index == 0 &&
                 process->device->visible >= static_cast<std::int32_t>(processes.size());
        });
    if (!on_one || processes.size() < 2)
      continue;
    Finding finding;
    finding.code = Code::kDevices;
    finding.severity = Severity::kWarning;
    finding.confidence = Confidence::kLikely;
    for (const Process* const process : processes) {
      finding.affected.insert(*process->rank);
      finding.tell_of(EvidenceKind::kResource, {*process->rank}, "{} on cuda:0 of {}, GPU {}",
                      history::words_of_pid(process->pid), process->device->visible,
                      process->device->uuid);
    }
    finding.headline = fmt::format("{} work on one GPU, and each of them sees {}",
                                   words(finding.affected), first->visible);
    finding.help =
        "torch.cuda.set_device(int(os.environ[\"LOCAL_RANK\"])) before the first call of CUDA";
    return finding;
  }
  return std::nullopt;
}

}  // namespace

Verdict DeviceChoice::check(const Job& job) const {
  const Run& run = job.run();
  Verdict verdict{.name = std::string(name())};
  if (!run.plan.scenario.empty() || run.processes.empty())
    return verdict.skip("no program of a user's was seen inside");
  verdict.outcome = Outcome::kPass;
  verdict.examined["processes"] = run.processes.size();
  for (const LateDevices& late : run.late_devices) {
    if (const Process* const process = rank_process(run, late.pid))
      verdict.findings.push_back(chosen_too_late(late, *process->rank));
  }
  if (auto finding = never_chosen(run))
    verdict.findings.push_back(std::move(*finding));
  return verdict;
}

}  // namespace lockstep::checkers
