// Goal: locksteps of one job find each other, ask and answer; who says nothing is told of, and is
// not taken for one who hangs.
#include "harness/session/job_hosts.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <list>

#include "tests/support/typed_run.h"
#include "tests/unit/history/history_support.h"
#include "tests/unit/session/fake_job.h"

namespace lockstep::testing {
namespace {

using history::Heads;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// One of two ranks, which waits in a call.
lockstep::Run of_rank(std::int32_t rank, std::int32_t world_size, const std::string& meets_at) {
  lockstep::Run run = make_run({{all_reduce("dp", 8).inside()}});
  run.ends.clear();
  run.plan.world_size = world_size;
  for (ProcessStart& start : run.starts) {
    start.rank = Rank{rank};
    start.meets_at = meets_at;
  }
  run.processes.front().rank = Rank{rank};
  return run;
}

/// A host, and what its lockstep says.
struct Host {
  Host(const history::TempDir& place, const std::string& name, const session::Clock& clock,
       lockstep::Run run)
      : directory(history::RunDirectory::create({.run_dir = place / name, .shm = ""}).value()),
        journal(history::JournalWriter::create(directory.journal()).value()),
        job(std::move(run), kStart),
        notices(clock, [this](std::string_view text) { said.emplace_back(text); }),
        hosts(directory, clock, notices, journal) {
    EXPECT_TRUE(directory.write_plan({.world_size = 2}));
  }
  history::RunDirectory directory;
  history::JournalWriter journal;
  FakeJob job;
  std::vector<std::string> said{};
  session::Notices notices;
  session::JobHosts hosts;
};

class TwoHosts : public ::testing::Test {
 protected:
  Host& add(std::int32_t rank, std::int32_t world_size = 2,
            const std::string& meets_at = "10.0.0.1:29500") {
    return hosts_.emplace_back(place_, "node" + std::to_string(hosts_.size() + 1), clock_,
                               of_rank(rank, world_size, meets_at));
  }
  /// Each looks, one after the other.
  void pass(milliseconds time, const std::vector<Host*>& looking) {
    for (const session::TimePoint end = now_ + time; now_ < end; now_ += milliseconds(250)) {
      for (Host* const host : looking)
        host->hosts.look(host->job);
    }
  }
  [[nodiscard]] std::vector<Heads> heads() const {
    return history::heads_beside(place_ / "nobody");
  }

  history::TempDir place_{};
  session::TimePoint now_{std::chrono::nanoseconds(kStart)};
  session::Clock clock_{[this] { return now_; }};
  std::list<Host> hosts_{};
};

TEST_F(TwoHosts, OneThatHasAllRanksTellsNobody) {
  Host& alone = add(0, 1);
  pass(seconds(3), {&alone});
  EXPECT_THAT(heads(), IsEmpty());
}

TEST_F(TwoHosts, TheLowestRankAsksWhenAllStandStill) {
  Host& first = add(0);
  Host& second = add(1);
  pass(seconds(1), {&first, &second});
  ASSERT_THAT(heads(), SizeIs(2));
  EXPECT_EQ(heads()[0].question, 0U) << "not after a second";
  pass(seconds(1), {&first, &second});
  EXPECT_EQ(heads()[0].question, 1U);
  EXPECT_EQ(heads()[1].question, 0U) << "one judges";
  EXPECT_THAT(second.job.looks, SizeIs(1));
  EXPECT_THAT(first.job.looks, SizeIs(1));
  pass(seconds(30), {&first, &second});
  EXPECT_GT(heads()[0].question, 2U);
  EXPECT_LT(heads()[0].question, 7U) << "each pause is longer";
  EXPECT_EQ(first.hosts.verdict(), "") << "their histories prove nothing";
  EXPECT_THAT(first.said, IsEmpty());
}

TEST_F(TwoHosts, NobodyIsAskedWhileARankOfTheWorldIsNotHeardOf) {
  Host& first = add(0, 3);
  Host& second = add(1, 3);
  pass(seconds(10), {&first, &second});
  EXPECT_EQ(heads()[0].question, 0U);
}

TEST_F(TwoHosts, AnotherJobBesideThemIsNotTheirs) {
  Host& first = add(0);
  Host& other = add(1, 2, "10.0.0.9:29500");
  pass(seconds(10), {&first, &other});
  EXPECT_EQ(heads()[0].question, 0U);
  other.hosts.agree("it hangs");
  pass(seconds(1), {&first});
  EXPECT_EQ(first.hosts.verdict(), "");
}

TEST_F(TwoHosts, WhatAnEarlierJobLeftIsNoHostOfThisOne) {
  Host& first = add(0);
  Heads left{.directory = place_ / "before",
             .host = "node9",
             .beat = 70,
             .meets_at = "10.0.0.1:29500",
             .world_size = 2,
             .ranks = {Rank{1}},
             .verdict = "it hangs"};
  std::filesystem::create_directory(left.directory);
  ASSERT_TRUE(history::write_heads(left));
  pass(seconds(10), {&first});
  EXPECT_EQ(first.hosts.verdict(), "");
  EXPECT_THAT(first.said, IsEmpty());
  EXPECT_TRUE(first.hosts.elsewhere().empty());
  Host& second = add(1);
  pass(seconds(5), {&first, &second});
  EXPECT_GT(heads()[1].question, 0U) << "what is left of the other one does not matter";
}

TEST_F(TwoHosts, WhoDoesNotAnswerIsToldAndNotBlamed) {
  Host& first = add(0);
  Host& second = add(1);
  pass(seconds(1), {&first, &second});
  for (int i = 0; i < 120; ++i) {  // Its heads count on, and it does not look.
    Heads heads = this->heads()[1];
    ++heads.beat;
    heads.still_ms = 5'000;
    ASSERT_TRUE(history::write_heads(heads));
    pass(milliseconds(250), {&first});
  }
  ASSERT_THAT(first.said, SizeIs(1));
  EXPECT_THAT(first.said.front(), HasSubstr("does not answer"));
  EXPECT_EQ(first.hosts.verdict(), "");
}

TEST_F(TwoHosts, WhoSaysNothingIsToldOnce) {
  Host& first = add(0);
  Host& second = add(1);
  pass(seconds(1), {&first, &second});
  pass(milliseconds(2'500), {&first});
  EXPECT_THAT(first.said, IsEmpty());
  pass(seconds(60), {&first});
  ASSERT_FALSE(first.said.empty());
  EXPECT_THAT(first.said.front(), HasSubstr("has said nothing for 3."));
  EXPECT_THAT(first.said.front(), HasSubstr("(rank 1)"));
  EXPECT_EQ(first.hosts.verdict(), "");
  const std::size_t lines = first.said.size();
  pass(seconds(3), {&first, &second});
  EXPECT_THAT(first.said, SizeIs(lines));
  EXPECT_GT(heads()[0].question, 0U) << "it is heard of again";
}

TEST_F(TwoHosts, WhoSleptHasNotHeardTheOthers) {
  Host& first = add(0);
  Host& second = add(1);
  pass(seconds(1), {&first, &second});
  now_ += seconds(60);
  pass(seconds(1), {&first});
  EXPECT_THAT(first.said, IsEmpty());
}

TEST_F(TwoHosts, WhoEndsIsNotSilent) {
  Host& first = add(0);
  Host& second = add(1);
  pass(seconds(1), {&first, &second});
  second.hosts.ends();
  pass(seconds(10), {&first});
  EXPECT_THAT(first.said, IsEmpty());
}

TEST_F(TwoHosts, WhatOneFindsAllAgreeTo) {
  Host& first = add(0);
  Host& second = add(1);
  pass(seconds(1), {&first, &second});
  second.hosts.agree("it hangs");
  EXPECT_FALSE(second.hosts.all_agree());
  pass(milliseconds(250), {&first});
  EXPECT_EQ(first.hosts.verdict(), "it hangs");
  first.hosts.agree(first.hosts.verdict());
  pass(milliseconds(250), {&second});
  EXPECT_TRUE(second.hosts.all_agree());
}

}  // namespace
}  // namespace lockstep::testing
