// Following a history while it is written: nothing is lost, torn or invented, and open calls close.
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "harness/history/follower.h"
#include "tests/unit/history/history_support.h"

namespace lockstep::history {
namespace {

using testing::ElementsAre;

TEST(HistoryFollower, SeesWhatIsNew) {
  const TempDir place;
  Follower follower(place.path(), place / "lockstep.jsonl");
  EXPECT_FALSE(follower.poll());
  EXPECT_FALSE(follower.head(getpid()));
  const auto writer = open_writer(place);
  ASSERT_NE(writer, nullptr);
  const GroupHandle dp = define(*writer, "dp");
  EXPECT_TRUE(follower.poll());
  EXPECT_FALSE(follower.poll());
  const Ticket ticket = writer->issue(dp, all_reduce(5));
  EXPECT_TRUE(follower.poll());
  ASSERT_EQ(follower.run().processes.size(), 1U);
  const Process& process = follower.run().processes[0];
  ASSERT_EQ(process.collectives.size(), 1U);
  EXPECT_FALSE(process.collectives[0].returned_ns);
  EXPECT_TRUE(process.vouches(0));
  const Head before = *follower.head(getpid());
  EXPECT_EQ(before.records, 1U);
  writer->returned(ticket);
  EXPECT_NE(*follower.head(getpid()), before);  // Fresh, without a poll.
  EXPECT_TRUE(follower.poll());
  EXPECT_TRUE(process.collectives[0].returned_ns);
  writer->completed(ticket);
  EXPECT_TRUE(follower.poll());
  EXPECT_TRUE(process.collectives[0].completed_ns);
  writer->set_rank(3, 8);
  EXPECT_TRUE(follower.poll());
  EXPECT_EQ(process.rank, Rank{3});
  writer->close();
  EXPECT_TRUE(follower.poll());
  EXPECT_TRUE(process.closed);
  EXPECT_FALSE(follower.poll());
  EXPECT_TRUE(follower.run().live);

  auto journal = JournalWriter::create(place / "lockstep.jsonl");
  ASSERT_TRUE(journal);
  ASSERT_TRUE(journal->append(Note{.at_ns = 1, .text = "a"}));
  EXPECT_TRUE(follower.poll());
  EXPECT_EQ(follower.run().notes.size(), 1U);
  EXPECT_FALSE(follower.poll());
  EXPECT_THAT(follower.run().missing, ElementsAre());
}

TEST(HistoryFollower, ReadsARingThatIsBeingOverwritten) {
  const TempDir place;
  const auto writer = open_writer(place);
  ASSERT_NE(writer, nullptr);
  const GroupHandle dp = define(*writer, "dp");
  Follower follower(place.path(), "", {}, 1000);
  const Ticket open = writer->issue(dp, all_reduce(0));
  writer->returned(open);
  constexpr std::uint64_t kRecords = 400000;
  std::atomic<bool> done{false};
  std::thread thread([&] {
    for (std::uint64_t i = 1; i < kRecords; ++i)
      writer->returned_completed(writer->issue(dp, all_reduce(i)));
    done = true;
  });
  std::uint64_t polls = 0;
  for (bool last = false; !last; ++polls) {
    last = done;
    follower.poll();
    const Process& process = follower.run().processes[0];
    EXPECT_FALSE(process.damaged);
    EXPECT_LE(process.collectives.size(), 2000U + 1);
    for (const Collective& collective : process.collectives) {
      // Every field is of the same record: it was not torn.
      ASSERT_EQ(collective.seq, collective.record);
      ASSERT_EQ(collective.numel_in, collective.record);
      ASSERT_TRUE(!collective.returned_ns || *collective.returned_ns >= collective.issued_ns);
    }
  }
  thread.join();
  follower.poll();
  const Process& process = follower.run().processes[0];
  ASSERT_FALSE(process.collectives.empty());
  EXPECT_EQ(process.collectives.back().record, kRecords - 1);
  EXPECT_EQ(process.collectives.front().record, 0U);  // Incomplete, so it is kept.
  EXPECT_FALSE(process.collectives.front().completed_ns);
  EXPECT_EQ(process.dropped, kRecords - process.collectives.size());
  writer->completed(open);
  follower.poll();
  EXPECT_TRUE(process.collectives.front().completed_ns);
}

}  // namespace
}  // namespace lockstep::history
