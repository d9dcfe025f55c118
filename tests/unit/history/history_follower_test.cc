// Following a history while it is written: nothing is lost, torn or invented, and open calls close.
#include <gmock/gmock.h>

#include <atomic>
#include <functional>
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
  EXPECT_TRUE(process.is_complete(0));
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

TEST(HistoryFollower, AGroupIsToldWhatItIsWhenThatComesOut) {
  const TempDir place;
  Follower follower(place.path(), place / "lockstep.jsonl");
  const auto writer = open_writer(place);
  ASSERT_NE(writer, nullptr);
  GroupInfo info;
  info.name = "members/3";
  info.size = 2;
  info.named_by_store = true;
  info.store = 7;
  const GroupHandle group = writer->define_group(info);
  EXPECT_TRUE(follower.poll());
  const Process& process = follower.run().processes.at(0);
  EXPECT_TRUE(process.groups.at(0).named_by_store);
  EXPECT_EQ(process.groups[0].store, 7U);
  EXPECT_FALSE(process.is_complete(0));
  define(*writer, "dp");
  writer->issue(group, all_reduce(5));
  const std::int32_t ranks[] = {3, 1};
  info = {};
  info.name = "dp";
  info.size = 2;
  info.my_rank = 1;
  info.ranks = ranks;
  info.rank_count = 2;
  info.from_creation = true;
  writer->redefine_group(group, info);
  EXPECT_TRUE(follower.poll());
  const Group& now = process.groups.at(0);
  EXPECT_EQ(now.name, "dp");
  EXPECT_THAT(now.ranks, ElementsAre(Rank{3}, Rank{1}));
  EXPECT_EQ(now.my_rank, 1);
  EXPECT_EQ(now.issued, 1U);
  EXPECT_FALSE(now.named_by_store);
  EXPECT_EQ(now.store, 0U);
  EXPECT_TRUE(process.is_complete(0));
  writer->is_inside(group, true);
  writer->issue(group, all_reduce(5));
  EXPECT_TRUE(follower.poll());
  EXPECT_TRUE(now.inside);
}

/// Calls `between` after the first of the two reads that each piece of the ring takes.
class OvertakenSource final : public ByteSource {
 public:
  OvertakenSource(std::unique_ptr<ByteSource> source, std::function<void()> between)
      : source_(std::move(source)), between_(std::move(between)) {}
  std::uint64_t size() override { return source_->size(); }
  std::size_t read(std::uint64_t offset, std::span<std::byte> into) override {
    const std::size_t got = source_->read(offset, into);
    if (into.size() == kPiece * sizeof(Slot) && reads_++ % 2 == 0)
      between_();
    return got;
  }
  static constexpr std::size_t kPiece = 4096;

 private:
  std::unique_ptr<ByteSource> source_;
  std::function<void()> between_;
  std::size_t reads_{};
};

TEST(HistoryFollower, AReaderThatIsSlowCountsWhatItMissed) {
  const TempDir place;
  const auto writer = open_writer(place);
  ASSERT_NE(writer, nullptr);
  const GroupHandle dp = define(*writer, "dp");
  std::uint64_t records = 0;
  const auto write = [&](std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i)
      writer->returned_completed(writer->issue(dp, all_reduce(records++)));
  };
  write(3 * OvertakenSource::kPiece);  // More than the ring holds.
  auto file = FileSource::open(writer->path());
  ASSERT_TRUE(file);
  int pieces = 0;
  bool slow = true;
  ProcessReader reader(
      std::make_unique<OvertakenSource>(std::move(*file),
                                        [&] {
                                          pieces += slow ? 1 : 0;
                                          write(slow ? OvertakenSource::kPiece : 0);
                                        }),
      "slow.lsh", 1000);
  ASSERT_TRUE(reader.poll(false));
  EXPECT_GE(pieces, 2);  // More is torn than the list of absent records holds.
  slow = false;
  ASSERT_TRUE(reader.poll(false));
  EXPECT_EQ(reader.process().collectives.back().record, records - 1);
  EXPECT_EQ(reader.process().dropped, records - reader.process().collectives.size());
}

TEST(HistoryFollower, WhatWasClosedAndIsTakenAwayIsDamaged) {
  const TempDir place;
  const auto writer = open_writer(place);
  ASSERT_NE(writer, nullptr);
  writer->returned_completed(writer->issue(define(*writer, "dp"), all_reduce(1)));
  writer->close();
  auto file = FileSource::open(writer->path());
  ASSERT_TRUE(file);
  ProcessReader reader(std::move(*file), "gone.lsh");
  ASSERT_TRUE(reader.poll(false));
  EXPECT_TRUE(reader.process().closed);
  std::filesystem::resize_file(writer->path(), 0);
  ASSERT_TRUE(reader.poll(true));
  EXPECT_TRUE(reader.process().damaged);
  EXPECT_FALSE(reader.process().closed);
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
