// Goal: a hang is proven soon, and a rank that is merely late is not found guilty. Method: cases of
// the suite, run with real rank hosts, and their closed runs read again.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/process/suite/suite_fixture.h"

namespace lockstep {
namespace {

constexpr int kProofs = 20;
constexpr double kProofLimitS = 1.0;
constexpr const char* kLateS = "20";

/// From the last thing that a rank did to the moment at which the proof ended the case.
double proof_s(const lockstep::Run& run) {
  std::uint64_t last_ns = 0;
  std::uint64_t proven_ns = 0;
  for (const Process& process : run.processes) {
    for (const Collective& call : process.collectives)
      last_ns = std::max(
          {last_ns, call.issued_ns, call.returned_ns.value_or(0), call.completed_ns.value_or(0)});
  }
  for (const Request& request : run.requests)
    last_ns = std::max(last_ns, request.answered_ns.value_or(0));
  for (const Acted& acted : run.acted) {
    if (acted.action == "ended-early")
      proven_ns = acted.at_ns;
  }
  return (static_cast<double>(proven_ns) - static_cast<double>(last_ns)) / 1e9;
}

TEST_F(SuiteProcess, ASkippedAllReduceIsProvenWithinASecond) {
  CaseRunner runner(*supervisor_, options_, *directory_);
  std::vector<double> proofs;
  for (int i = 0; i < kProofs; ++i) {
    const std::vector<Case> cases =
        mutant_cases(*all_scenarios().front(), static_cast<std::uint64_t>(i));
    Case cell = find_case(cases, "gradient-equivalence/mutant/skip_bucket_then_wait/");
    cell.id += fmt::format("/{}", i);
    const Result<CaseReport> report = runner.run(cell);
    ASSERT_TRUE(report) << report.error().what;
    EXPECT_EQ(report->outcome, Outcome::kPass) << report->reason;
    const Result<lockstep::Run> run = history::open_run(report->run_directory);
    ASSERT_TRUE(run) << run.error().what;
    proofs.push_back(proof_s(*run));
  }
  std::sort(proofs.begin(), proofs.end());
  fmt::print("proven after {:.3f} s (median of {}; {:.3f} to {:.3f} s)\n", proofs[kProofs / 2],
             kProofs, proofs.front(), proofs.back());
  EXPECT_LT(proofs[kProofs / 2], kProofLimitS);
}

TEST_F(SuiteProcess, ARankThatIsLateIsGuiltyOfNothing) {
  CaseRunner runner(*supervisor_, options_, *directory_);
  Case cell = find_case(all_scenarios().front()->cells(),
                        "gradient-equivalence/ddp/w3/float64/bucket_cap_bytes");
  cell.options["late_s"] = kLateS;
  cell.id = case_id(cell);
  const Result<CaseReport> report = runner.run(cell);
  ASSERT_TRUE(report) << report.error().what;
  EXPECT_EQ(report->outcome, Outcome::kPass) << report->reason;
  EXPECT_TRUE(report->findings.empty());
  EXPECT_GE(report->wall_s, std::stod(kLateS));
}

}  // namespace
}  // namespace lockstep
