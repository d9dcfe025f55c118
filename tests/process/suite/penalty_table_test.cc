// Goal: docs/gradient_penalty.md says what the suite finds. Method: every row names a case; the
// case is run and judged.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "harness/launch/supervisor.h"
#include "scenarios/case_runner.h"
#include "scenarios/gradient_penalty.h"

namespace lockstep {
namespace {

struct Row {
  std::string wrapper{}, inner_gradient{}, result{}, case_id{};
};

std::string trimmed(std::string text) {
  const auto first = text.find_first_not_of(" `");
  const auto last = text.find_last_not_of(" `");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

std::vector<Row> table() {
  std::ifstream file(std::string(LOCKSTEP_SOURCE_DIR) + "/docs/gradient_penalty.md");
  std::vector<Row> rows;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("| `", 0) != 0)
      continue;
    std::istringstream cells(line.substr(1));
    std::vector<std::string> columns;
    for (std::string cell; std::getline(cells, cell, '|');)
      columns.push_back(trimmed(cell));
    if (columns.size() == 5)
      rows.push_back({columns[0], columns[2], columns[3], columns[4]});
  }
  return rows;
}

// "fails: LS504" -> "LS504"; empty for what is right as declared.
std::string code_of(const std::string& result) {
  const auto at = result.find("LS");
  return at == std::string::npos ? "" : result.substr(at);
}

TEST(PenaltyTable, SaysWhatTheSuiteFinds) {
  auto supervisor = launch::Supervisor::unguarded();
  ASSERT_TRUE(supervisor) << supervisor.error().what;
  const char* temporary = std::getenv("TMPDIR");
  history::RunOptions where;
  where.run_dir =
      fmt::format("{}/lockstep-penalty-{}", temporary == nullptr ? "/tmp" : temporary, getpid());
  auto directory = history::RunDirectory::create(where);
  ASSERT_TRUE(directory) << directory.error().what;
  SuiteOptions options;
  options.rank_host = LOCKSTEP_RANK_HOST;
  options.reference_host = LOCKSTEP_REFERENCE_HOST;
  {
    CaseRunner runner(**supervisor, options, *directory);
    const GradientPenalty scenario;
    std::vector<Case> cases = scenario.cells();
    for (Case& mutant : mutant_cases(scenario, /*seed=*/1))
      cases.push_back(std::move(mutant));
    const std::vector<Row> rows = table();
    ASSERT_EQ(rows.size(), 11U);
    for (const Row& row : rows) {
      const auto at = std::find_if(cases.begin(), cases.end(), [&](const Case& cell) {
        return cell.id == row.case_id || cell.id.rfind(row.case_id + "/", 0) == 0;
      });
      ASSERT_NE(at, cases.end()) << "no case is called " << row.case_id;
      auto report = runner.run(*at);
      ASSERT_TRUE(report) << report.error().what;
      EXPECT_EQ(report->outcome, Outcome::kPass) << row.case_id << ": " << report->reason;
      const std::string code = code_of(row.result);
      EXPECT_EQ(code.empty(), report->mutants.empty()) << row.case_id;
      if (!code.empty() && !report->mutants.empty()) {
        EXPECT_EQ(report->mutants.front().got,
                  std::vector<Code>{lockstep::code_of(code).value_or(Code::kNone)})
            << row.case_id;
      }
      const bool local =
          row.inner_gradient == "of a rank's rows" || row.inner_gradient == "of a replica's rows";
      EXPECT_EQ(row.result == "rank-local", local) << row.case_id;
      EXPECT_EQ(at->option("model") == "critic_bn" && at->option("sync_bn") != "on", local)
          << row.case_id;
    }
  }
  if (!::testing::Test::HasFailure()) {
    std::error_code ignored;
    std::filesystem::remove_all(where.run_dir, ignored);
  }
}

}  // namespace
}  // namespace lockstep
