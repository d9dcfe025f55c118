#include "checkers/order/group_creations.h"

#include <gtest/gtest.h>

#include "harness/history/format.h"
#include "tests/support/typed_run.h"

namespace lockstep::checkers {
namespace {

using namespace lockstep::testing;  // NOLINT(google-build-using-namespace)

constexpr std::uint64_t kStore = 77;

lockstep::Run world_of(std::int32_t size) {
  return make_run(std::vector<Row>(static_cast<std::size_t>(size),
                                   Row{all_reduce("0", 8), all_reduce("0", 8)}));
}

/// `rank` creates a group of `members` under `name`, from this line.
void create(lockstep::Run& run, std::int32_t rank, const std::string& name,
            const std::vector<std::int32_t>& members, std::int32_t line) {
  Process& process = process_of(run, Rank{rank});
  Creation creation;
  creation.name = name;
  creation.store = kStore;
  creation.size = static_cast<std::int32_t>(members.size());
  for (const std::int32_t member : members)
    creation.ranks.push_back(Rank{member});
  creation.site = static_cast<std::uint32_t>(process.sites.size());
  creation.at_ns = kStart + process.creations.size() * kMs;
  Frame frame;
  frame.module = frame.file = "job.py";
  frame.offset = static_cast<std::uint64_t>(line);
  frame.line = line;
  frame.function = "main";
  process.sites.push_back({{frame}});
  process.creations.push_back(creation);
}

void begin_world_again(lockstep::Run& run, std::int32_t rank) {
  Process& process = process_of(run, Rank{rank});
  Creation creation;
  creation.name = "0";
  creation.store = kStore + 1;
  creation.at_ns = kStart + process.creations.size() * kMs;
  process.creations.push_back(creation);
  process.groups.push_back(process.groups.front());
}

TEST(Creations, EachNodeMakesItsOwnGroupAlone) {
  lockstep::Run run = world_of(4);
  for (std::int32_t rank = 0; rank < 4; ++rank)
    create(run, rank, "1", {rank / 2 * 2, rank / 2 * 2 + 1}, 13);
  const auto findings = creations_that_differ(run);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].code, Code::kGroupDiffers);
  EXPECT_EQ(findings[0].confidence, Confidence::kCertain);
  EXPECT_TRUE(findings[0].culprits.empty());
  EXPECT_EQ(findings[0].affected.size(), 4U);
  EXPECT_EQ(findings[0].headline,
            "group 1 was created of ranks 0,1 by ranks 0,1 and of ranks 2,3 by ranks 2,3");
  EXPECT_EQ(findings[0].sites.front().line, 13);
}

TEST(Creations, CreatedByAllOnesAreSilent) {
  lockstep::Run run = world_of(4);
  for (std::int32_t rank = 0; rank < 4; ++rank)
    create(run, rank, rank < 2 ? "1" : "2", {rank / 2 * 2, rank / 2 * 2 + 1}, 13);
  EXPECT_TRUE(creations_that_differ(run).empty());
}

TEST(Creations, NamesThatAreNoNumbersAreSilent) {
  lockstep::Run run = world_of(4);
  for (std::int32_t rank = 0; rank < 4; ++rank)
    create(run, rank, rank < 2 ? "5ae1" : "5ae1", {rank / 2 * 2, rank / 2 * 2 + 1}, 13);
  EXPECT_TRUE(creations_that_differ(run).empty());
}

TEST(Creations, GroupsOfOneMeetNobody) {
  lockstep::Run run = world_of(3);
  for (std::int32_t rank = 0; rank < 3; ++rank)
    create(run, rank, "1", {rank}, 13);
  EXPECT_TRUE(creations_that_differ(run).empty());
}

TEST(Creations, OtherStoresAreOtherWorlds) {
  lockstep::Run run = world_of(4);
  for (std::int32_t rank = 0; rank < 4; ++rank) {
    create(run, rank, "1", {rank / 2 * 2, rank / 2 * 2 + 1}, 13);
    process_of(run, Rank{rank}).creations[0].store += static_cast<std::uint64_t>(rank / 2);
  }
  EXPECT_TRUE(creations_that_differ(run).empty());
  for (Process& process : run.processes)  // Where it is not known, nothing is.
    process.creations[0].store = 0;
  EXPECT_TRUE(creations_that_differ(run).empty());
}

TEST(Creations, WhoIsNoMemberLeftItOut) {
  lockstep::Run run = world_of(2);
  create(run, 0, "1", {0}, 17);
  create(run, 0, "2", {0, 1}, 20);
  create(run, 1, "1", {0, 1}, 20);
  const auto findings = creations_that_differ(run);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].culprits, RankSet{Rank{1}});
  EXPECT_EQ(findings[0].confidence, Confidence::kCertain);
  EXPECT_EQ(findings[0].headline, "rank 1 left out the new_group(0) at job.py:17 that rank 0 made");
  ASSERT_EQ(findings[0].sites.size(), 2U);
  EXPECT_EQ(findings[0].sites[0].role, "culprit");
  EXPECT_EQ(findings[0].sites[0].line, 20);
  EXPECT_EQ(findings[0].sites[1].line, 17);
}

TEST(Creations, OneOfFourLeftItOut) {
  lockstep::Run run = world_of(4);
  create(run, 1, "1", {1, 2}, 17);
  create(run, 2, "1", {1, 2}, 17);
  for (std::int32_t rank = 0; rank < 4; ++rank)
    create(run, rank, rank == 3 ? "1" : "2", {0, 1, 2, 3}, 20);
  const auto findings = creations_that_differ(run);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].culprits, RankSet{Rank{3}});
}

TEST(Creations, AMemberThatLeftItOutIsNamedByTheMajorityOnly) {
  const auto run_of = [](std::int32_t size) {
    lockstep::Run run = world_of(size);
    std::vector<std::int32_t> all;
    for (std::int32_t rank = 0; rank < size; ++rank)
      all.push_back(rank);
    for (std::int32_t rank = 0; rank < size; ++rank) {
      if (rank > 0)
        create(run, rank, "1", {0, 1}, 17);
      create(run, rank, rank > 0 ? "2" : "1", all, 20);
    }
    return run;
  };
  const auto of_three = creations_that_differ(run_of(3));
  ASSERT_EQ(of_three.size(), 1U);
  EXPECT_EQ(of_three[0].culprits, RankSet{Rank{0}});
  EXPECT_EQ(of_three[0].confidence, Confidence::kLikely);
}

TEST(Creations, AnotherOrderIsNobodysOmission) {
  lockstep::Run run = world_of(3);
  for (std::int32_t rank = 0; rank < 3; ++rank) {
    create(run, rank, rank == 2 ? "2" : "1", {0, 2}, 17);
    create(run, rank, rank == 2 ? "1" : "2", {0, 1, 2}, 20);
  }
  const auto findings = creations_that_differ(run);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_TRUE(findings[0].culprits.empty());
}

TEST(Creations, AMemberThatWentOnWithoutItDisagrees) {
  lockstep::Run run = world_of(2);
  create(run, 0, "1", {0, 1}, 20);
  create(run, 1, "2", {0, 1}, 20);
  const auto findings = creations_that_differ(run);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_TRUE(findings[0].culprits.empty());
}

TEST(Creations, ARankThatHasNotComeYetOwesNothing) {
  lockstep::Run run = world_of(3);
  create(run, 0, "1", {0, 1}, 13);
  create(run, 0, "2", {0, 2}, 13);
  create(run, 1, "1", {0, 1}, 13);
  EXPECT_TRUE(creations_that_differ(run).empty());
}

TEST(Creations, TheNextWorldCountsFromTheBeginning) {
  lockstep::Run run = world_of(2);
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    create(run, rank, "1", {0, 1}, 13);
    begin_world_again(run, rank);
  }
  create(run, 0, "1", {0}, 17);
  create(run, 1, "1", {1}, 17);
  EXPECT_TRUE(creations_that_differ(run).empty());
  // Who sat a world out has fewer behind it.
  begin_world_again(run, 1);
  create(run, 1, "1", {0, 1}, 30);
  EXPECT_TRUE(creations_that_differ(run).empty());
}

TEST(Creations, WithGroupsThatCountOtherwiseNobodyIsNamed) {
  lockstep::Run run = world_of(2);
  create(run, 0, "5ae1", {0}, 17);
  create(run, 0, "1", {0}, 18);
  create(run, 0, "2", {0, 1}, 20);
  create(run, 1, "1", {0, 1}, 20);
  const auto findings = creations_that_differ(run);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_TRUE(findings[0].culprits.empty());
}

TEST(Creations, AnUnreadableHistoryOrOneWithTheParentsGroupsSaysNothing) {
  lockstep::Run run = world_of(2);
  create(run, 0, "1", {0}, 17);
  create(run, 1, "1", {0, 1}, 20);
  EXPECT_EQ(creations_that_differ(run).size(), 1U);
  lockstep::Run damaged = run;
  damaged.processes[1].damaged = true;
  EXPECT_TRUE(creations_that_differ(damaged).empty());
  lockstep::Run forked = run;
  forked.processes[1].capabilities |= history::kForkedChild;
  EXPECT_EQ(creations_that_differ(forked).size(), 1U);
  forked.processes[1].groups[0].seen_from_creation = false;
  EXPECT_TRUE(creations_that_differ(forked).empty());
}

}  // namespace
}  // namespace lockstep::checkers
