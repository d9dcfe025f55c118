// Groups that are about to be created, and calls that were set aside, as they come back.
#include <gmock/gmock.h>

#include "tests/unit/history/history_support.h"

namespace lockstep::history {
namespace {

using testing::ElementsAre;

TEST(HistoryCreations, GroupsThatAreBegunAndCallsThatAreSetAsideComeBack) {
  const TempDir place;
  const auto writer = open_writer(place);
  ASSERT_NE(writer, nullptr);
  define(*writer, "0");
  const SiteFrame frame{"train.py", 12, "main", 20};
  const std::int32_t ranks[] = {1, 3};
  CreationInfo begun;
  begun.name = "1";
  begun.store = 99;
  begun.size = 2;
  begun.my_rank = 0;
  begun.ranks = ranks;
  begun.rank_count = 2;
  begun.site = writer->define_site(7, &frame, 1);
  writer->begin_creation(begun);
  const std::vector<std::int32_t> many(kCreationRanksMax + 1);
  begun.name = "2";
  begun.size = static_cast<std::int32_t>(many.size());
  begun.ranks = many.data();
  begun.rank_count = kCreationRanksMax + 1;
  writer->begin_creation(begun);
  writer->set_aside("all_reduce", 3);
  writer->close();

  const ProcessFile file = read_back(writer->path());
  EXPECT_THAT(file.missing, ElementsAre());
  ASSERT_EQ(file.process.creations.size(), 2U);
  const Creation& first = file.process.creations[0];
  EXPECT_EQ(first.name, "1");
  EXPECT_EQ(first.store, 99U);
  EXPECT_EQ(first.size, 2);
  EXPECT_EQ(first.my_rank, 0);
  EXPECT_THAT(first.ranks, ElementsAre(Rank{1}, Rank{3}));
  EXPECT_EQ(file.process.sites[first.site].frames.front().line, 20);
  EXPECT_GE(first.at_ns, file.process.opened_ns);
  EXPECT_TRUE(file.process.creations[1].ranks.empty());
  ASSERT_EQ(file.process.set_aside.size(), 1U);
  EXPECT_EQ(file.process.set_aside[0].op, "all_reduce");
  EXPECT_EQ(file.process.set_aside[0].calls, 3U);
}

}  // namespace
}  // namespace lockstep::history
