// Goal: the page holds every rank's calls as the history has them, stays small, and nothing that a
// run says can break out of its data.
#include "harness/session/picture.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

using Json = nlohmann::json;

Json data_of(const std::string& page) {
  const std::string before = "<script type=\"application/json\" id=\"data\">";
  const std::size_t begin = page.find(before) + before.size();
  return Json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

std::string page_of(const lockstep::Run& run, const Report& report = {}) {
  return session::render_page(report, worlds_of(run));
}

/// Rank 1 has not come to the last call, in which rank 0 waits.
lockstep::Run waiting() {
  return make_run({{all_reduce("dp", 8).at("t.py", 7), all_reduce("dp", 8).at("t.py", 9).pending()},
                   {all_reduce("dp", 8).at("t.py", 7)}});
}

TEST(Picture, HasEachRanksCallsByPlaceInTheOrder) {
  const Json job = data_of(page_of(waiting()))["job"];
  ASSERT_EQ(job["groups"].size(), 1U);
  const Json& group = job["groups"][0];
  EXPECT_EQ(group["label"], "dp");
  EXPECT_EQ(group["rows"][0]["states"], "dp");
  EXPECT_EQ(group["rows"][1]["states"], "d");
  EXPECT_EQ(group["rows"][0]["calls"], Json({0, 1}));
  EXPECT_EQ(job["kinds"][1]["site"], "t.py:9");
  EXPECT_EQ(job["kinds"][1]["op"], "all_reduce");
  EXPECT_EQ(job["ranks"].size(), 2U);
}

TEST(Picture, ShowsThePartAroundTheFirstDivergence) {
  std::vector<Call> calls(3'000, all_reduce("dp", 8));
  Report report;
  report.findings.push_back({.code = Code::kDifferentOp, .group = "dp", .seq = 1'000});
  const lockstep::Run run = make_run({calls, calls});
  const Json around = data_of(page_of(run, report))["job"]["groups"][0];
  const auto first = around["first"].get<std::uint64_t>();
  EXPECT_LE(first, 1'000U);
  EXPECT_GE(first + around["rows"][0]["calls"].size(), 1'001U);
  const Json at_end = data_of(page_of(run))["job"]["groups"][0];
  EXPECT_EQ(at_end["first"].get<std::uint64_t>() + at_end["rows"][0]["calls"].size(), 3'000U);
}

TEST(Picture, StaysBelowTwoMegabytes) {
  const std::vector<Call> calls(500, all_reduce("dp", 8).at("t.py", 7));
  EXPECT_LE(page_of(make_run(std::vector<std::vector<Call>>(256, calls))).size(), 2U << 20);
}

/// One rank does not come to the last sum of a training, and all others wait for it.
lockstep::Run many(std::int32_t ranks, std::int32_t absent) {
  const Row step{all_gather("shards", 64, 512).at("model/layer.py", 41).in_for(12, "batch"),
                 all_reduce("shards", 4096).at("model/layer.py", 57).in_for(12, "batch"),
                 all_reduce("dp", 1 << 20).at("train.py", 88).in_for(12, "batch")};
  const Row others = Row{broadcast("dp", 512).at("train.py", 30)} + times(20, step);
  std::vector<Row> rows(static_cast<std::size_t>(ranks), others);
  rows[static_cast<std::size_t>(absent)].pop_back();
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    if (rank != absent)
      rows[static_cast<std::size_t>(rank)].back() = others.back().pending();
  }
  lockstep::Run run = make_run(rows);
  hang(run);
  return run;
}

Report report_of(std::int32_t ranks, std::int32_t absent) {
  Report report;
  report.outcome = Outcome::kFail;
  report.exit_status = 1;
  report.world_size = ranks;
  report.command = {"torchrun", "train.py", "--layers", "48"};
  Finding finding{.code = Code::kStalledOutside, .group = "dp", .op = "all_reduce", .seq = 20};
  finding.headline = fmt::format(
      "rank {} is asleep in read() at data/loader.py:203; {} ranks wait for it in all_reduce dp#20",
      absent, ranks - 1);
  finding.culprits.insert(Rank{absent});
  finding.tell(EvidenceKind::kProcess, finding.culprits,
               "its main thread slept in both samples, 300 ms apart");
  finding.tell(EvidenceKind::kWait, {Rank{0}}, "rank 0 waits")
      .about(CallRef{.group = "dp", .seq = 20});
  finding.sites = {{Rank{absent}, "culprit", "data/loader.py", 203, "Loader.read"},
                   {Rank{0}, "peer", "train.py", 88, "Trainer.step"}};
  report.findings.push_back(std::move(finding));
  return report;
}

TEST(Picture, HasTheGroupOfTheFindingWhereThereAreManyGroups) {
  Row row;
  for (int group = 0; group < 60; ++group)
    row.push_back(all_reduce(fmt::format("g{}", group), 8));
  Report report;
  report.findings.push_back({.code = Code::kDifferentOp, .group = "g55", .seq = 0});
  const Json groups = data_of(page_of(make_run({row, row}), report))["job"]["groups"];
  EXPECT_EQ(groups[0]["label"], "g55");
}

class PictureOfMany : public ::testing::TestWithParam<std::int32_t> {};

/// LS_PAGES=DIR keeps the pages, to be looked at.
TEST_P(PictureOfMany, ShowsTheHoleFirstAndStaysSmall) {
  const std::int32_t absent = GetParam() / 2 + 1;
  const std::string page = page_of(many(GetParam(), absent), report_of(GetParam(), absent));
  if (const char* const folder = std::getenv("LS_PAGES"); folder != nullptr)
    std::ofstream(fmt::format("{}/{}.html", folder, GetParam())) << page;
  EXPECT_LE(page.size(), 2U << 20);
  const Json first = data_of(page)["job"]["groups"][0];
  EXPECT_EQ(first["label"], "dp");
  EXPECT_EQ(first["size"], GetParam());
  const Json line = data_of(page)["report"]["findings"][0]["evidence"][1];
  EXPECT_EQ(line["call"]["group"], first["label"]) << "what a click on it looks for";
}

INSTANTIATE_TEST_SUITE_P(Ranks, PictureOfMany, ::testing::Values(8, 64, 1024));

TEST(Picture, TextsOfTheRunStayData) {
  Report report;
  const std::string hostile = "</script><script>alert(1)</script><!-- <script>";
  report.findings.push_back({.code = Code::kRankDied, .headline = hostile});
  const std::string page = page_of(waiting(), report);
  EXPECT_EQ(page.find("alert(1)</script>"), std::string::npos);
  EXPECT_EQ(data_of(page)["report"]["findings"][0]["headline"], hostile);
}

TEST(Picture, OfASuiteHasItsCases) {
  Report report;
  report.cases.push_back({.id = "s/i/w2", .scenario = "s", .implementation = "i"});
  const Json data = data_of(session::render_page(report, {}));
  EXPECT_TRUE(data["job"].is_null());
  EXPECT_EQ(data["report"]["cases"][0]["id"], "s/i/w2");
}

}  // namespace
}  // namespace lockstep::testing
