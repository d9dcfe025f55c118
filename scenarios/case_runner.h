// One case, from its directory to its report: plan, hosts, conversation, end, and the judgement of
// the closed run.
#pragma once

#include <string>

#include "harness/history/run_directory.h"
#include "harness/launch/host_job.h"
#include "harness/launch/supervisor.h"
#include "harness/launch/warm_parent.h"
#include "harness/symbols/resolver.h"
#include "scenarios/suite.h"

namespace lockstep {

class CaseRunner {
 public:
  CaseRunner(launch::Supervisor& supervisor, const SuiteOptions& options,
             history::RunDirectory& suite);

  /// Runs one case, and closes its directory. Errors: the run directory cannot be written, or the
  /// hosts cannot be started.
  Result<void> play(const Case& cell);
  /// And judges it.
  Result<CaseReport> run(const Case& cell);

  /// What the hosts of the options' subject say of it.
  Result<std::vector<Subject>> introduce();

 private:
  Result<void> talk(const Case& cell, history::RunDirectory& directory, Plan& plan);

  launch::Supervisor& supervisor_;
  const SuiteOptions& options_;
  history::RunDirectory& suite_;
  launch::WarmParent ranks_;
  launch::WarmParent reference_;
  symbols::Resolver resolver_;  // Kept: opening a library's symbols costs more than a case.
};

}  // namespace lockstep
