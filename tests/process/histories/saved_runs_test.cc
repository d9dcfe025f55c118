// Goal: every build says of the saved runs in fixtures/histories what was said when they were
// saved, and never says more of less. Method: each is unpacked, without its reports, into a
// directory of its own and judged by the call that `lockstep check` makes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "checkers/worlds.h"
#include "harness/history/run_directory.h"
#include "harness/report/json.h"
#include "scenarios/suite.h"
#include "tests/support/metamorphic.h"
#include "tests/support/saved_run.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

using testing::saved_runs;

/// One saved run, unpacked.
class SavedRuns : public ::testing::TestWithParam<std::string> {
 protected:
  testing::SavedRun place_{GetParam()};
};

/// Only these members of an object.
Json only(const Json& object, const std::vector<const char*>& members) {
  Json kept = Json::object();
  for (const char* const member : members)
    kept[member] = object.at(member);
  return kept;
}

/// Six digits: the order of a sum may change with the compiler.
Json rounded(const Json& value) {
  return value.is_number_float() && std::isfinite(value.get<double>())
             ? Json(fmt::format("{:.5e}", value.get<double>()))
             : value;
}

/// What a report means, without its prose and its times.
Json meaning(const Report& report) {
  const Json whole = Json::parse(render_json(report));
  Json result = only(whole, {"verdict", "exit"});
  for (const Json& found : whole.at("findings")) {
    Json finding = only(found, {"code", "also", "severity", "culprits", "affected", "group", "op",
                                "seq", "step", "names", "sites", "consequences"});
    finding["confidence"] = found.at("cause").at("confidence");
    result["findings"].push_back(std::move(finding));
  }
  for (const Json& one : whole.at("cases")) {
    Json kept = only(one, {"id", "verdict", "marks"});
    for (const Json& measured : one.at("measures")) {
      Json measure = only(measured, {"name", "rule"});
      for (const char* const number : {"value", "tolerance", "power"})
        measure[number] = rounded(measured.at(number));
      kept["measures"].push_back(std::move(measure));
    }
    result["cases"].push_back(std::move(kept));
  }
  for (const Verdict& verdict : report.checks)
    result["checks"][verdict.name] = name_of(verdict.outcome);
  for (const CaseReport& one : report.cases) {
    for (const Verdict& verdict : one.checks)
      result["checks"][verdict.name] = name_of(verdict.outcome);
  }
  return result;
}

/// Of a case of the suite; or of a job, what its report is made from.
Result<Report> judged(const std::string& directory) {
  auto run = history::open_run(directory);
  if (!run || !run->plan.scenario.empty())
    return judge_saved(directory);
  const std::vector<World> worlds = worlds_of(std::move(*run));
  const checkers::Judgement judgement =
      checkers::together(worlds, checkers::judge_worlds(worlds, checkers::all_checkers()));
  Report report;
  report.outcome = judgement.outcome;
  report.findings = judgement.findings;
  report.checks = judgement.verdicts;
  return report;
}

TEST_P(SavedRuns, AreJudgedAsWhenTheyWereSaved) {
  const Result<Report> report = judged(place_.path());
  ASSERT_TRUE(report) << report.error().what;
  const Json said = meaning(*report);
  const fs::path file = fs::path(LOCKSTEP_HISTORIES) / (GetParam() + ".json");
  if (const char* update = std::getenv("LS_UPDATE_GOLDEN"); update != nullptr) {
    std::ofstream(file) << said.dump(1) << '\n';
    return;
  }
  Json saved = Json::parse(std::ifstream(file), nullptr, false);
  // Checkers that came later may say what they like, as long as they find nothing.
  for (const auto& [name, outcome] : said.at("checks").items()) {
    if (saved.is_object() && !saved["checks"].contains(name) && outcome != "fail")
      saved["checks"][name] = outcome;
  }
  EXPECT_EQ(said.dump(1), saved.dump(1)) << "if that is meant: ci/dev golden -R SavedRuns";
}

TEST_P(SavedRuns, SayNoMoreWhenPartsAreDeleted) {
  const auto run = history::open_run(place_.path());
  ASSERT_TRUE(run) << run.error().what;
  const testing::LawOptions few{.single_max = 120, .subsets = 30};
  for (const std::string& violation : testing::law_violations(*run, few))
    ADD_FAILURE() << violation;
}

INSTANTIATE_TEST_SUITE_P(Fixtures, SavedRuns, ::testing::ValuesIn(saved_runs()),
                         [](const auto& run) {
                           std::string name = run.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace lockstep
