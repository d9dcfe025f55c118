// Files that are torn, cut off, overwritten or garbage: what is certain comes back, what is missing
// is said, and the three ways to be incomplete (gap, no end, damage) are told apart.
#include <gmock/gmock.h>

#include <cstring>
#include <random>

#include "tests/unit/history/history_support.h"

namespace lockstep::history {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A closed file of 1,000 completed collectives in group dp, the last one open, as bytes to be
/// spoiled.
class HistoryDamage : public testing::Test {
 protected:
  void SetUp() override {
    const auto writer = open_writer(place_);
    ASSERT_NE(writer, nullptr);
    const GroupHandle dp = define(*writer, "dp");
    const SiteFrame frame{"train.py", 1, "step", 2};
    const std::uint32_t site = writer->define_site(1, &frame, 1);
    for (std::uint64_t i = 0; i < 1000; ++i) {
      Issue call = all_reduce(i);
      call.site = site;
      const Ticket ticket = writer->issue(dp, call);
      if (i < 999)
        writer->returned_completed(ticket);
    }
    writer->close();
    bytes_ = bytes_of_file(writer->path());
    std::memcpy(&header_, bytes_.data(), sizeof header_);
  }

  template <class T>
  void put(std::size_t offset, T value) {
    std::memcpy(bytes_.data() + offset, &value, sizeof value);
  }
  [[nodiscard]] std::size_t slot(std::uint64_t index) const {
    return header_.ring_offset + index * sizeof(Slot);
  }
  void erase_slot(std::uint64_t index) {
    std::memset(bytes_.data() + slot(index), 0, sizeof(Slot));
  }
  void reopen() { put(offsetof(FileHeader, closed), std::uint64_t{0}); }

  TempDir place_;
  FileHeader header_{};
  std::vector<std::byte> bytes_;
};

TEST_F(HistoryDamage, AnUnspoiledFileIsWhole) {
  const auto file = read_bytes(bytes_);
  ASSERT_TRUE(file);
  EXPECT_THAT(file->missing, ElementsAre());
  EXPECT_TRUE(file->process.closed);
  EXPECT_EQ(file->process.collectives.size(), 1000U);
}

TEST_F(HistoryDamage, NoClosingRecordIsNoDamage) {
  reopen();
  const auto file = read_bytes(bytes_);
  ASSERT_TRUE(file);
  EXPECT_FALSE(file->process.closed);
  EXPECT_TRUE(file->process.is_complete(0));
  EXPECT_THAT(file->missing, ElementsAre());
}

TEST_F(HistoryDamage, AClosingRecordThatCountsOtherwiseIsNone) {
  put(offsetof(FileHeader, closed_records), std::uint64_t{999});
  EXPECT_FALSE(read_bytes(bytes_)->process.closed);
  EXPECT_EQ(read_bytes(bytes_)->process.closed_ns, 0U);
}

TEST_F(HistoryDamage, AGapIsDamageAndEndsVouching) {
  erase_slot(500);
  const auto file = read_bytes(bytes_);
  ASSERT_TRUE(file);
  EXPECT_THAT(file->missing, ElementsAre(HasSubstr("record 500 is missing")));
  EXPECT_TRUE(file->process.damaged);
  EXPECT_FALSE(file->process.closed);
  EXPECT_FALSE(file->process.is_complete(0));
  EXPECT_EQ(file->process.collectives.size(), 999U);
}

TEST_F(HistoryDamage, TheLastRecordErasedIsDamageSinceItWasCounted) {
  erase_slot(999);
  reopen();
  EXPECT_TRUE(read_bytes(bytes_)->process.damaged);
}

TEST_F(HistoryDamage, KilledInsideIssueIsCutShortAndStillVouches) {
  reopen();
  put(offsetof(FileHeader, next_record), std::uint64_t{1001});  // A number taken, nothing written.
  const auto file = read_bytes(bytes_);
  ASSERT_TRUE(file);
  EXPECT_THAT(file->missing, ElementsAre(HasSubstr("its process ended while writing")));
  EXPECT_FALSE(file->process.damaged);
  EXPECT_TRUE(file->process.is_complete(0));
  EXPECT_FALSE(file->process.closed);
}

TEST_F(HistoryDamage, KilledBetweenCommitAndCountIsCounted) {
  reopen();
  put(header_.groups_offset + offsetof(GroupEntry, issued), std::uint64_t{999});
  const auto file = read_bytes(bytes_);
  EXPECT_EQ(file->process.groups[0].issued, 1000U);
  EXPECT_FALSE(file->process.damaged);
}

TEST_F(HistoryDamage, CutAnywhereGivesWhatLiesBefore) {
  std::size_t last = 0;
  for (std::size_t size = 0; size <= bytes_.size(); size += 4096 + 13 * 8) {
    const auto file = read_bytes(std::span(bytes_).first(size));
    if (!file) {
      EXPECT_LT(size, sizeof(FileHeader));
      EXPECT_EQ(file.error().kind, Error::Kind::kMalformedHistory);
      continue;
    }
    EXPECT_TRUE(file->process.damaged || size == bytes_.size()) << size;
    EXPECT_FALSE(file->process.closed);
    EXPECT_FALSE(file->missing.empty());
    EXPECT_GE(file->process.collectives.size(), last);
    last = file->process.collectives.size();
    EXPECT_TRUE(size <= slot(1000) || last == 1000U);
  }
}

TEST_F(HistoryDamage, ABrokenDefinitionLosesTheSitesNotTheRecords) {
  put(header_.definitions_offset, std::uint64_t{0x1234});
  const auto file = read_bytes(bytes_);
  ASSERT_TRUE(file);
  EXPECT_TRUE(file->process.damaged);
  EXPECT_EQ(file->process.collectives.size(), 1000U);
  EXPECT_EQ(file->process.collectives[0].site, 0U);
}

TEST_F(HistoryDamage, ABrokenGroupLosesItsRecords) {
  put(header_.groups_offset, std::uint64_t{0});
  const auto file = read_bytes(bytes_);
  ASSERT_TRUE(file);
  EXPECT_TRUE(file->process.damaged);
  EXPECT_TRUE(file->process.groups.empty());
  EXPECT_TRUE(file->process.collectives.empty());
}

TEST_F(HistoryDamage, HostileHeadersAreRefused) {
  const auto original = bytes_;
  const std::pair<std::size_t, const char*> fields[] = {
      {offsetof(FileHeader, magic), "is not a history file"},
      {offsetof(FileHeader, version), "format version"},
      {offsetof(FileHeader, ring_capacity), "layout"},
      {offsetof(FileHeader, groups_offset), "layout"},
      {offsetof(FileHeader, definitions_bytes), "layout"},
      {offsetof(FileHeader, digests_capacity), "layout"},
      {offsetof(FileHeader, pending_capacity), "layout"},
  };
  for (const auto& [offset, what] : fields) {
    bytes_ = original;
    put(offset, std::uint64_t{0x7fffffffffffffffULL});
    const auto file = read_bytes(bytes_);
    ASSERT_FALSE(file) << what;
    EXPECT_THAT(file.error().what, HasSubstr(what));
  }
}

TEST_F(HistoryDamage, HostileCountersAreBounded) {
  const auto original = bytes_;
  for (const std::size_t offset :
       {offsetof(FileHeader, next_record), offsetof(FileHeader, groups_used),
        offsetof(FileHeader, definitions_used), offsetof(FileHeader, digests_used),
        offsetof(FileHeader, reserved_slots), offsetof(FileHeader, ring_final)}) {
    for (const std::uint64_t value : {~0ULL, 1ULL << 40, 3ULL, 0ULL}) {
      bytes_ = original;
      put(offset, value);
      const auto file = read_bytes(bytes_);
      ASSERT_TRUE(file);
      EXPECT_LE(file->process.collectives.size(), 1000U);
    }
  }
}

TEST_F(HistoryDamage, RandomBytesNeverCrash) {
  std::mt19937_64 random(1);
  const auto original = bytes_;
  for (int round = 0; round < 300; ++round) {
    bytes_ = original;
    for (int i = 0; i < 30; ++i) {
      const std::size_t areas[] = {0,
                                   header_.definitions_offset,
                                   header_.groups_offset,
                                   header_.digests_offset,
                                   header_.pending_offset,
                                   header_.ring_offset};
      put(areas[random() % 6] + random() % 1024, random());
    }
    const auto file = read_bytes(bytes_);
    EXPECT_TRUE(!file || file->process.collectives.size() <= 1000U);
  }
}

}  // namespace
}  // namespace lockstep::history
