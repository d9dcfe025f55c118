#include "checkers/late_devices.h"

#include <fmt/format.h>

#include <algorithm>

#include "checkers/sites.h"

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

}  // namespace

Verdict LateDeviceChoice::check(const Run& run) const {
  Verdict verdict{.name = std::string(name())};
  if (!run.plan.scenario.empty() || run.processes.empty()) {
    verdict.outcome = Outcome::kSkipped;
    verdict.reason = "no program of a user's was seen inside";
    return verdict;
  }
  verdict.outcome = Outcome::kPass;
  verdict.examined["processes"] = run.processes.size();
  for (const LateDevices& late : run.late_devices) {
    const Process* const process = rank_process(run, late.pid);
    if (process == nullptr)
      continue;
    Finding finding;
    finding.code = "LS110";
    finding.severity = Severity::kWarning;
    finding.at_ns = late.at_ns;
    finding.culprits = {*process->rank};
    finding.confidence = Confidence::kCertain;
    const auto site = site_of(*process->rank, late.site.frames, "culprit");
    finding.headline = fmt::format(
        "rank {} changed CUDA_VISIBLE_DEVICES to {}{} after CUDA had been initialised: it keeps {}",
        process->rank->value, late.set, at_site(site), late.in_force);
    finding.evidence = {
        fmt::format("CUDA_VISIBLE_DEVICES of pid {}: {} when it was started, {} "
                    "when CUDA was initialised, {} at last",
                    late.pid, late.at_start, late.in_force, late.set)};
    finding.help =
        "set it before the process starts, or before the first call that initialises CUDA";
    if (site)
      finding.sites.push_back(*site);
    verdict.findings.push_back(std::move(finding));
  }
  return verdict;
}

}  // namespace lockstep::checkers
