// Goal: what code hosts show stands at the culprit's line, says all that was found, and is well
// formed whatever the strings hold.
#include "harness/report/annotations.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/unit/report/samples.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

Report one(Severity severity, std::vector<SiteRef> sites) {
  Report report;
  report.outcome = Outcome::kFail;
  report.findings.push_back({.code = Code::kAbsentRank,
                             .severity = severity,
                             .headline = "rank 1 is absent, 100%",
                             .culprits = {Rank{1}},
                             .op = "all_reduce",
                             .sites = std::move(sites),
                             .evidence = {evidence_of(EvidenceKind::kWait, {}, "rank 0 waits")}});
  return report;
}

const SiteRef kPeer{Rank{0}, "peer", "/repo/a dir/train.py", 7, "step"};
const SiteRef kCulprit{Rank{1}, "culprit", "/repo/data.py", 9, "read"};
const SiteRef kElsewhere{Rank{1}, "culprit", "/usr/lib/data.py", 9, "read"};

Json result_of(const Report& report) {
  return Json::parse(render_sarif(report, "/repo"))["runs"][0]["results"][0];
}

TEST(Sarif, AFindingLiesAtTheLineOfItsCulprit) {
  const Json result = result_of(one(Severity::kError, {kPeer, kCulprit}));
  const Json& place = result["locations"][0]["physicalLocation"];
  EXPECT_EQ(place["artifactLocation"]["uri"], "data.py");
  EXPECT_EQ(place["artifactLocation"]["uriBaseId"], "%SRCROOT%");
  EXPECT_EQ(place["region"]["startLine"], 9);
  EXPECT_EQ(result["ruleId"], "LS301");
  EXPECT_EQ(result["level"], "error");
  EXPECT_EQ(result["relatedLocations"].size(), 2U);
  EXPECT_EQ(result["relatedLocations"][0]["physicalLocation"]["artifactLocation"]["uri"],
            "a%20dir/train.py");
  EXPECT_EQ(result["codeFlows"][0]["threadFlows"][1]["id"], "rank 1");
  EXPECT_EQ(
      result_of(one(Severity::kError,
                    {kElsewhere}))["locations"][0]["physicalLocation"]["artifactLocation"]["uri"],
      "file:///usr/lib/data.py");
  EXPECT_FALSE(result_of(one(Severity::kError, {})).contains("locations"));
}

TEST(Sarif, ALineThatMovesIsNoNewFinding) {
  SiteRef moved = kCulprit;
  moved.line = 30;
  const auto print = [](const SiteRef& site) {
    return result_of(one(Severity::kError, {site}))["partialFingerprints"];
  };
  EXPECT_EQ(print(kCulprit), print(moved));
  moved.function = "write";
  EXPECT_NE(print(kCulprit), print(moved));
}

TEST(Sarif, WhatCannotBeDecidedIsOpen) {
  const Json results =
      Json::parse(render_sarif(testing::interrupted(), "/repo"))["runs"][0]["results"];
  ASSERT_FALSE(results.empty());
  EXPECT_EQ(results[0]["kind"], "open");
  EXPECT_TRUE(Json::parse(render_sarif(testing::healthy_run(), "/"))["runs"][0]["results"].empty());
}

TEST(Github, ACommandStandsOnOneLine) {
  EXPECT_EQ(render_github(one(Severity::kError, {kCulprit}), "/repo"),
            "::error file=data.py,line=9,title=LS301 a rank is absent from a collective that "
            "others wait in::rank 1 is absent, 100%25%0Aculprit: rank 1%0Arank 0 waits\n");
  EXPECT_THAT(render_github(one(Severity::kNote, {}), "/repo"), HasSubstr("::notice title=LS301"));
  EXPECT_EQ(render_github(testing::healthy_run(), "/repo"), "");
}

TEST(Gitlab, IsAListOfIssues) {
  const Json list = Json::parse(render_gitlab(one(Severity::kWarning, {kCulprit}), "/repo"));
  ASSERT_EQ(list.size(), 1U);
  EXPECT_EQ(list[0]["location"]["path"], "data.py");
  EXPECT_EQ(list[0]["location"]["lines"]["begin"], 9);
  EXPECT_EQ(list[0]["severity"], "minor");
  EXPECT_EQ(Json::parse(render_gitlab(testing::healthy_run(), "/repo")), Json::array());
}

TEST(Annotations, HostileStringsAreHarmless) {
  const Report report = testing::hostile();
  EXPECT_TRUE(Json::accept(render_sarif(report, "/")));
  EXPECT_TRUE(Json::accept(render_gitlab(report, "/")));
  EXPECT_THAT(render_markdown(report), Not(HasSubstr("<b>")));
  std::string text = render_github(report, "/");
  for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1)
    EXPECT_EQ(text.compare(at, 2, "::"), 0);
}

}  // namespace
}  // namespace lockstep
