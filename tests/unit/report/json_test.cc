// report.json: the fields of the format, the numbers JSON has no word for, and reading back.
#include "harness/report/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/golden/golden.h"
#include "tests/unit/report/samples.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
using Keys = std::vector<std::string>;

Json document_of(const Report& report) { return Json::parse(render_json(report)); }

Keys keys_of(const Json& object) {
  Keys keys;
  for (const auto& item : object.items())
    keys.push_back(item.key());
  return keys;
}

std::string error_of(std::string_view text) {
  const Result<Report> report = parse_report(text);
  return report ? "" : report.error().what;
}

TEST(Json, HasTheFieldsOfTheFormatInTheirOrder) {
  const Json run = document_of(testing::hang());
  EXPECT_EQ(keys_of(run), (Keys{"format", "run", "command", "verdict", "reason", "unseen", "exit",
                                "program_exit", "world_size", "wall_s", "versions", "ranks",
                                "worlds", "checks", "findings", "cases"}));
  EXPECT_EQ(keys_of(run["ranks"][0]), (Keys{"rank", "pid", "host", "status"}));
  EXPECT_EQ(keys_of(run["checks"][0]), (Keys{"name", "verdict", "reason", "examined"}));
  EXPECT_EQ(
      keys_of(run["findings"][0]),
      (Keys{"code",     "also",  "severity",     "case",      "world",  "headline", "culprits",
            "affected", "group", "op",           "seq",       "step",   "names",    "sites",
            "evidence", "cause", "consequences", "ruled_out", "unseen", "help"}));
  EXPECT_EQ(keys_of(run["findings"][0]["sites"][0]),
            (Keys{"rank", "role", "file", "line", "function"}));
  EXPECT_EQ(keys_of(run["findings"][0]["cause"]), (Keys{"text", "confidence"}));
  const Json result = document_of(testing::healthy_suite())["cases"][0];
  EXPECT_EQ(keys_of(result),
            (Keys{"id", "scenario", "implementation", "subject", "ranks", "dtype", "device", "seed",
                  "verdict", "reason", "marks", "measures", "mutants", "wall_s"}));
  EXPECT_EQ(keys_of(result["measures"][0]),
            (Keys{"name", "value", "tolerance", "rule", "unit", "power"}));
  EXPECT_EQ(keys_of(result["mutants"][0]), (Keys{"name", "of", "expected", "got", "culprits"}));
}

TEST(Json, EvidenceIsData) {
  const Json finding = document_of(testing::hang())["findings"][0];
  const Json& lines = finding["evidence"];
  EXPECT_EQ(keys_of(lines[0]), (Keys{"kind", "ranks", "text"}));
  EXPECT_EQ(keys_of(lines[1]), (Keys{"kind", "ranks", "call", "site", "text"}));
  EXPECT_EQ(lines[1]["kind"], "wait");
  EXPECT_EQ(lines[1]["ranks"], finding["affected"]);
  EXPECT_EQ(lines[1]["call"], Json({{"group", "dp"}, {"seq", 1291}}));
  EXPECT_EQ(keys_of(lines[1]["site"]), keys_of(finding["sites"][0]));
  EXPECT_EQ(lines[1]["site"]["line"], 181);
  const Json killed = document_of(testing::killed())["findings"][0]["evidence"][0];
  EXPECT_EQ(killed, Json({{"kind", "end"}, {"text", "SIGKILL did not come from lockstep"}}));
}

TEST(Json, EveryKindOfEvidenceIsReadBack) {
  Report report;
  Finding& finding = report.findings.emplace_back(Finding{.code = Code::kRankDied});
  for (int kind = 0; kind <= static_cast<int>(EvidenceKind::kFinding); ++kind)
    finding.tell(static_cast<EvidenceKind>(kind), {Rank{kind}}, "{}", kind);
  const Result<Report> read = parse_report(render_json(report));
  ASSERT_TRUE(read) << read.error().what;
  const std::vector<Evidence>& lines = read->findings.at(0).evidence;
  ASSERT_EQ(lines.size(), finding.evidence.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].kind, finding.evidence[i].kind) << i;
    EXPECT_EQ(lines[i].ranks, finding.evidence[i].ranks) << i;
    EXPECT_FALSE(lines[i].call || lines[i].site) << i;
  }
}

TEST(Json, SaysNullWhereThereIsNothing) {
  const Json suite = document_of(testing::failing_suite());
  EXPECT_TRUE(suite["world_size"].is_null());
  EXPECT_TRUE(suite["program_exit"].is_null());
  EXPECT_TRUE(suite["findings"][0]["seq"].is_null());
  EXPECT_EQ(suite["findings"][0]["step"], 0);
  EXPECT_TRUE(suite["cases"][0]["measures"][2]["power"].is_null());
  const Json killed = document_of(testing::killed());
  EXPECT_TRUE(killed["ranks"][5]["status"].is_null());
  EXPECT_EQ(killed["ranks"][2]["status"], Json({{"signaled", 9}}));
  EXPECT_TRUE(killed["findings"][0]["step"].is_null());
}

TEST(Json, FindingsNameTheirCase) {
  const Json suite = document_of(testing::failing_suite());
  EXPECT_EQ(suite["findings"][0]["case"], "gradient-equivalence/ddp/w3/float64/accumulate=2");
  EXPECT_TRUE(document_of(testing::hang())["findings"][0]["case"].is_null());
}

TEST(Json, NonFiniteNumbersAreStrings) {
  Report report = testing::healthy_suite();
  const double infinity = std::numeric_limits<double>::infinity();
  report.cases[0].measures = {{"m", -infinity, infinity, "double", "", std::nan("")}};
  const Json measure = document_of(report)["cases"][0]["measures"][0];
  EXPECT_EQ(measure["value"], "-inf");
  EXPECT_EQ(measure["tolerance"], "inf");
  EXPECT_EQ(measure["power"], "nan");
  const Measure read = parse_report(render_json(report))->cases[0].measures[0];
  EXPECT_EQ(read.value, -infinity);
  EXPECT_EQ(read.tolerance, infinity);
  EXPECT_TRUE(std::isnan(read.power.value()));
}

TEST(Json, KeepsEveryDigit) {
  Report report = testing::healthy_suite();
  report.cases[0].seed = std::numeric_limits<std::uint64_t>::max();
  const Report read = *parse_report(render_json(report));
  EXPECT_EQ(read.cases[0].seed, report.cases[0].seed);
  EXPECT_EQ(read.cases[0].measures[0].value, report.cases[0].measures[0].value);
}

TEST(Json, ReadsBackWhatItWrote) {
  for (const testing::Sample& sample : testing::all_samples()) {
    const std::string written = render_json(sample.report);
    const Result<Report> read = parse_report(written);
    ASSERT_TRUE(read) << sample.name << ": " << read.error().what;
    EXPECT_EQ(render_json(*read), written) << sample.name;
  }
}

TEST(Json, EverySavedReportStaysReadable) {
  // Written by earlier versions, and never rewritten.
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(testing::golden_path("saved"))) {
    if (entry.path().extension() != ".json")
      continue;
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    const Result<Report> read = parse_report(text);
    ASSERT_TRUE(read) << entry.path() << ": " << read.error().what;
    EXPECT_FALSE(read->findings.empty() && read->cases.empty()) << entry.path();
    ++count;
  }
  EXPECT_GE(count, 2U);
}

TEST(ParseReport, PassesOverWhatALaterMinorVersionAdds) {
  const Result<Report> read =
      parse_report(R"({"format": "lockstep-report/2", "run": "a", "new": {"x": [1]}})");
  ASSERT_TRUE(read) << read.error().what;
  EXPECT_EQ(read->run, "a");
  EXPECT_EQ(read->outcome, Outcome::kUndecided);
}

TEST(ParseReport, NamesWhatIsWrong) {
  EXPECT_EQ(error_of("{"), "report.json: not a JSON document");
  EXPECT_EQ(error_of("[]"), "report.json: the document is not an object");
  EXPECT_EQ(error_of("{}"), "report.json: format is \"\", need \"lockstep-report/2\"");
  EXPECT_EQ(error_of(R"({"format": "lockstep-report/3"})"),
            "report.json: format is \"lockstep-report/3\", need \"lockstep-report/2\"");
  const std::string head = R"({"format": "lockstep-report/2", )";
  EXPECT_EQ(error_of(head + R"("run": 1})"), "report.json: run is not a string");
  EXPECT_EQ(error_of(head + R"("exit": 4294967296})"),
            "report.json: exit is not an integer in range");
  EXPECT_EQ(error_of(head + R"("exit": -4294967296})"),
            "report.json: exit is not an integer in range");
  EXPECT_EQ(error_of(head + R"("exit": 1.5})"), "report.json: exit is not an integer in range");
  EXPECT_EQ(error_of(head + R"("cases": [{"seed": -1}]})"),
            "report.json: cases[0].seed is not an integer in range");
  EXPECT_EQ(error_of(head + R"("verdict": "maybe"})"),
            "report.json: verdict is not a known word, has \"maybe\"");
  EXPECT_EQ(error_of(head + R"("findings": [{"culprits": [0, "1"]}]})"),
            "report.json: findings[0].culprits[1] is not a rank");
  EXPECT_EQ(error_of(head + R"("findings": [7]})"), "report.json: findings[0] is not an object");
  EXPECT_EQ(error_of(head + R"("findings": [{"evidence": ["a line"]}]})"),
            "report.json: findings[0].evidence[0] is not an object");
  EXPECT_EQ(error_of(head + R"("findings": [{"evidence": [{"kind": "hearsay"}]}]})"),
            "report.json: findings[0].evidence[0].kind is not a known word, has \"hearsay\"");
  EXPECT_EQ(error_of(head + R"("wall_s": "long"})"),
            "report.json: wall_s is not a number, \"nan\", \"inf\" or \"-inf\"");
}

}  // namespace
}  // namespace lockstep
