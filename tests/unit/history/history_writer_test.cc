// What a writer records is what a reader gives back: every field, several threads, ring overflow,
// and the counts that go on when records are lost.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/unit/history/history_support.h"

namespace lockstep::history {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(HistoryWriter, AChildThatSharesTheMemoryDoesNotClose) {
  const TempDir place;
  const auto writer = open_writer(place);
  ASSERT_NE(writer, nullptr);
  const pid_t child = vfork();  // NOLINT(clang-analyzer-security.insecureAPI.vfork)
  if (child == 0) {
    writer->close();
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(read_back(writer->path()).process.closed);
  writer->close();
  EXPECT_TRUE(read_back(writer->path()).process.closed);
}

TEST(HistoryWriter, EveryFieldComesBack) {
  const TempDir place;
  const auto writer = open_writer(place);
  ASSERT_NE(writer, nullptr);
  const GroupHandle dp = define(*writer, "dp");
  const SiteFrame frames[] = {{"train.py", 12, "step", 167}, {"train.py", 40, "main", 200}};
  const std::uint32_t site = writer->define_site(7, frames, 2);
  EXPECT_EQ(writer->find_site(7), site);
  Issue call;
  call.op = Op::kReduce;
  call.dtype = DType::kBFloat16;
  call.reduce_op = ReduceOp::kMax;
  call.async = true;
  call.root = 2;
  call.tag = 5;
  call.numel_in = 10;
  call.numel_out = 20;
  call.counts_hash = 77;
  call.timeout_ms = 1500;
  call.site = site;
  const Ticket ticket = writer->issue(dp, call);
  writer->returned(ticket);
  writer->completed(ticket, true);
  writer->issue(dp, all_reduce(8));
  writer->close();

  const ProcessFile file = read_back(writer->path());
  const Process& process = file.process;
  EXPECT_THAT(file.missing, ElementsAre());
  EXPECT_TRUE(process.closed);
  EXPECT_GE(process.closed_ns, process.collectives.back().issued_ns);
  EXPECT_LE(process.closed_ns, clock_ns(CLOCK_MONOTONIC));
  EXPECT_FALSE(process.damaged);
  EXPECT_EQ(process.pid, getpid());
  EXPECT_EQ(process.rank, Rank{1});
  EXPECT_EQ(process.world_size, 4);
  EXPECT_EQ(process.torch_version, "2.15.0");
  EXPECT_EQ(process.boot_id.size(), 36U);
  EXPECT_NE(process.pid_namespace, 0U);
  EXPECT_NE(process.start_ticks, 0U);
  EXPECT_EQ(std::filesystem::path(writer->path()).filename().string(),
            process.host + "-" + std::to_string(getpid()) + "-" +
                std::to_string(process.start_ticks) + "-0.lsh");

  ASSERT_EQ(process.groups.size(), 1U);
  const Group& group = process.groups[0];
  EXPECT_EQ(group.name, "dp");
  EXPECT_EQ(group.size, 4);
  EXPECT_EQ(group.my_rank, 1);
  EXPECT_THAT(group.ranks, ElementsAre(Rank{0}, Rank{1}, Rank{2}, Rank{3}));
  EXPECT_TRUE(process.is_complete(0));
  EXPECT_EQ(group.issued, 2U);
  EXPECT_EQ(group.returned, 1U);
  EXPECT_EQ(group.completed, 1U);
  EXPECT_THAT(group.last_signatures,
              ElementsAre(signature(Op::kReduce, DType::kBFloat16, ReduceOp::kMax, 2, 10, 20),
                          signature(Op::kAllReduce, DType::kFloat32, ReduceOp::kSum, -1, 8, 8)));

  ASSERT_EQ(process.collectives.size(), 2U);
  const Collective& first = process.collectives[0];
  EXPECT_EQ(first.record, 0U);
  EXPECT_EQ(first.seq, 0U);
  EXPECT_EQ(first.op, Op::kReduce);
  EXPECT_EQ(first.dtype, DType::kBFloat16);
  EXPECT_EQ(first.reduce_op, ReduceOp::kMax);
  EXPECT_TRUE(first.async);
  EXPECT_FALSE(first.overlapped);
  EXPECT_EQ(first.root, 2);
  EXPECT_EQ(first.tag, 5);
  EXPECT_EQ(first.numel_in, 10U);
  EXPECT_EQ(first.numel_out, 20U);
  EXPECT_EQ(first.counts_hash, 77U);
  EXPECT_EQ(first.timeout_ms, 1500);
  EXPECT_EQ(first.thread, static_cast<std::uint32_t>(gettid()));
  EXPECT_TRUE(first.failed);
  ASSERT_TRUE(first.returned_ns && first.completed_ns);
  EXPECT_GT(*first.returned_ns, first.issued_ns);
  EXPECT_GE(*first.completed_ns, *first.returned_ns);
  EXPECT_FALSE(process.collectives[1].returned_ns);
  EXPECT_FALSE(process.collectives[1].failed);
  ASSERT_EQ(process.sites.size(), 2U);
  ASSERT_EQ(process.sites[first.site].frames.size(), 2U);
  const Frame& frame = process.sites[first.site].frames[0];
  EXPECT_EQ(frame.module, "train.py");
  EXPECT_EQ(frame.offset, 12U);
  EXPECT_EQ(frame.line, 167);
  EXPECT_EQ(frame.function, "step");
}

// The compiler must not fold the two sites into one.
__attribute__((noinline)) std::uint32_t site_of_caller(Writer& writer) {
  const void* const pcs[] = {__builtin_return_address(0)};
  return writer.site(pcs, 1);
}

TEST(HistoryWriter, NativeSitesAreModuleAndOffsetAndInternedOnce) {
  const TempDir place;
  const auto writer = open_writer(place);
  ASSERT_NE(writer, nullptr);
  std::uint32_t ids[3] = {};
  const volatile std::size_t count = 3;  // A loop that the compiler unrolls has three sites.
  for (std::size_t i = 0; i < count; ++i)
    ids[i] = site_of_caller(*writer);
  const std::uint32_t other = site_of_caller(*writer);
  EXPECT_EQ(ids[0], ids[2]);
  EXPECT_NE(ids[0], other);
  const Process process = read_back(writer->path()).process;
  ASSERT_EQ(process.sites.size(), 3U);
  const Frame& frame = process.sites[other].frames.at(0);
  EXPECT_EQ(frame.module, std::filesystem::read_symlink("/proc/self/exe").string());
  Dl_info info{};
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&site_of_caller), &info), 0);
  EXPECT_LT(frame.offset, std::filesystem::file_size(frame.module));
}

TEST(HistoryWriter, PointToPointCountsPerChannelAndNotInTheGroup) {
  const TempDir place;
  const auto writer = open_writer(place);
  ASSERT_NE(writer, nullptr);
  const GroupHandle dp = define(*writer, "dp");
  for (const Issue& call : {send_to(2), send_to(3), all_reduce(1), send_to(2), send_to(2, 9)})
    writer->returned_untold(writer->issue(dp, call));
  const Process process = read_back(writer->path()).process;
  std::vector<std::uint64_t> seqs;
  for (const Collective& collective : process.collectives)
    seqs.push_back(collective.seq);
  EXPECT_THAT(seqs, ElementsAre(0, 0, 0, 1, 0));
  EXPECT_EQ(process.groups[0].issued, 1U);
  EXPECT_EQ(process.groups[0].p2p_issued, 4U);
  EXPECT_EQ(process.groups[0].p2p_returned, 4U);
}

TEST(HistoryWriter, ACompletionThatIsNeverToldIsNoneAndSaysSo) {
  const TempDir place;
  const auto writer = open_writer(place);
  ASSERT_NE(writer, nullptr);
  const GroupHandle dp = define(*writer, "dp");
  const Ticket untold = writer->issue(dp, all_reduce(1));
  EXPECT_FALSE(read_back(writer->path()).process.collectives[0].completion_unseen)
      << "not yet back";
  writer->returned_untold(untold);
  writer->completed(untold);
  writer->returned(writer->issue(dp, all_reduce(2)));
  const Process process = read_back(writer->path()).process;
  ASSERT_EQ(process.collectives.size(), 2U);
  EXPECT_TRUE(process.collectives[0].completion_unseen && process.collectives[0].returned_ns);
  EXPECT_FALSE(process.collectives[0].completed_ns || process.collectives[0].failed);
  EXPECT_FALSE(process.collectives[1].completion_unseen);
  EXPECT_EQ(process.groups[0].returned, 2U);
  EXPECT_EQ(process.groups[0].completed, 0U);
}

TEST(HistoryWriter, NoTwoChannelsShareTheirCount) {
  const TempDir place;
  const auto writer = open_writer(place);
  ASSERT_NE(writer, nullptr);
  for (const char* const name : {"dp", "tp", "pp"}) {
    const GroupHandle group = define(*writer, name);
    for (std::int32_t peer = 0; peer < 16; ++peer) {
      for (std::int32_t tag = 0; tag < 16; ++tag) {
        Issue call = send_to(peer, tag);
        writer->returned(writer->issue(group, call));
        call.op = Op::kRecv;
        writer->returned(writer->issue(group, call));
      }
    }
  }
  for (const Collective& call : read_back(writer->path()).process.collectives)
    ASSERT_EQ(call.seq, 0U) << name_of(call.op) << " peer " << call.root << " tag " << call.tag;
}

TEST(HistoryWriter, ManyRanksLongNamesAndGenerations) {
  const TempDir place;
  const auto writer = open_writer(place);
  ASSERT_NE(writer, nullptr);
  std::vector<std::int32_t> ranks(500);
  for (std::size_t i = 0; i < ranks.size(); ++i)
    ranks[i] = static_cast<std::int32_t>(2 * i);
  const std::string name(400, 'x');
  GroupInfo info;
  info.name = name.c_str();
  info.ranks = ranks.data();
  info.rank_count = 500;
  info.size = 500;
  writer->define_group(info);
  const std::string other = name + "y";
  info.name = other.c_str();
  writer->define_group(info);
  define(*writer, "dp");
  define(*writer, "dp");
  const Process process = read_back(writer->path()).process;
  ASSERT_EQ(process.groups.size(), 4U);
  ASSERT_EQ(process.groups[1].ranks.size(), 500U);
  EXPECT_EQ(process.groups[1].ranks[499], Rank{998});
  EXPECT_EQ(process.groups[0].name.size(), 255U);
  EXPECT_NE(process.groups[0].name, process.groups[1].name);
  EXPECT_FALSE(process.is_complete(0));  // Not told from its creation.
  EXPECT_EQ(process.groups[2].generation, 0U);
  EXPECT_EQ(process.groups[3].generation, 1U);
}

TEST(HistoryWriter, TwoThreadsInsideOneGroupMarkBothAsOverlapped) {
  const TempDir place;
  const auto writer = open_writer(place);
  ASSERT_NE(writer, nullptr);
  const GroupHandle dp = define(*writer, "dp");
  const GroupHandle tp = define(*writer, "tp");
  writer->returned(writer->issue(dp, all_reduce(1)));
  const Ticket outer = writer->issue(dp, all_reduce(2));
  const Ticket nested = writer->issue(dp, all_reduce(3));  // The same thread: order is known.
  writer->returned(nested);
  std::thread([&] {
    writer->returned(writer->issue(dp, all_reduce(4)));
    writer->returned(writer->issue(tp, all_reduce(5)));
    writer->returned(writer->issue(dp, all_reduce(6)));  // `outer` is still inside.
  }).join();
  writer->returned(outer);
  writer->returned(writer->issue(dp, all_reduce(7)));
  const Process process = read_back(writer->path()).process;
  std::vector<bool> overlapped;
  for (const Collective& collective : process.collectives)
    overlapped.push_back(collective.overlapped);
  EXPECT_THAT(overlapped, ElementsAre(false, true, false, true, false, true, false));
}

TEST(HistoryWriter, ThreadsWriteSideBySideAndLoseNothing) {
  const TempDir place;
  const auto writer = open_writer(place, 16U << 20);
  ASSERT_NE(writer, nullptr);
  const GroupHandle groups[] = {define(*writer, "a"), define(*writer, "b")};
  constexpr int kThreads = 4;
  constexpr std::uint64_t kEach = 20000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < kEach; ++i)
        writer->returned_completed(writer->issue(groups[t % 2], all_reduce(i)));
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  writer->close();
  const ProcessFile file = read_back(writer->path());
  EXPECT_THAT(file.missing, ElementsAre());
  EXPECT_TRUE(file.process.closed);
  ASSERT_EQ(file.process.collectives.size(), kThreads * kEach);
  std::uint64_t next[2] = {};
  for (const Collective& collective : file.process.collectives) {
    ASSERT_EQ(collective.seq, next[collective.group]++);
    ASSERT_TRUE(collective.returned_ns && collective.completed_ns);
  }
  EXPECT_EQ(file.process.groups[0].completed, 2 * kEach);
  EXPECT_EQ(file.process.groups[0].digests.size(), 2 * kEach / kDigestBlock);
}

TEST(HistoryWriter, OverflowKeepsWhatIsIncompleteAndCountsTheRest) {
  const TempDir place;
  const auto writer = open_writer(place);
  ASSERT_NE(writer, nullptr);
  const GroupHandle dp = define(*writer, "dp");
  const Ticket early = writer->issue(dp, all_reduce(1));
  writer->returned(early);
  const Ticket late = writer->issue(dp, all_reduce(2));
  writer->returned(late);
  constexpr std::uint64_t kMany = 100000;
  for (std::uint64_t i = 2; i < kMany; ++i)
    writer->returned_completed(writer->issue(dp, all_reduce(i)));
  writer->completed(early);
  writer->completed(early);  // Said twice: counted once.
  writer->close();
  const ProcessFile file = read_back(writer->path());
  const Process& process = file.process;
  EXPECT_THAT(file.missing, ElementsAre());
  EXPECT_TRUE(process.closed);
  EXPECT_TRUE(process.is_complete(0));
  EXPECT_EQ(process.groups[0].issued, kMany);
  EXPECT_EQ(process.groups[0].completed, kMany - 1);
  EXPECT_EQ(process.groups[0].digests.size(), kMany / kDigestBlock);
  const std::uint64_t ring = ring_slots(*writer);
  ASSERT_EQ(process.collectives.size(), ring + 2);
  EXPECT_EQ(process.dropped, kMany - ring - 2);
  EXPECT_EQ(process.collectives[0].record, 0U);
  EXPECT_TRUE(process.collectives[0].completed_ns);
  EXPECT_EQ(process.collectives[1].record, 1U);
  EXPECT_FALSE(process.collectives[1].completed_ns);
  EXPECT_EQ(process.collectives[2].record, kMany - ring);
  EXPECT_EQ(process.collectives.back().record, kMany - 1);
}

TEST(HistoryWriter, TooManyIncompleteRecordsAreSaid) {
  const TempDir place;
  const auto writer = open_writer(place);
  ASSERT_NE(writer, nullptr);
  const GroupHandle dp = define(*writer, "dp");
  constexpr std::uint64_t kMany = 15000;
  for (std::uint64_t i = 0; i < kMany; ++i)
    writer->returned(writer->issue(dp, all_reduce(i)));
  const ProcessFile file = read_back(writer->path());
  ASSERT_EQ(file.missing.size(), 1U);
  EXPECT_EQ(file.process.dropped, kMany - ring_slots(*writer) - 256);
  EXPECT_THAT(file.missing[0], HasSubstr(std::to_string(file.process.dropped) +
                                         " incomplete old records found no room"));
  EXPECT_TRUE(file.process.is_complete(0));
}

TEST(HistoryWriter, ARingThatMayNotGrowWrapsEarly) {
  const TempDir place;
  const auto writer = open_writer(place, 16U << 20);
  ASSERT_NE(writer, nullptr);
  const GroupHandle dp = define(*writer, "dp");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit limit{std::filesystem::file_size(writer->path()) + 100, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  for (std::uint64_t i = 0; i < 20000; ++i)
    writer->returned_completed(writer->issue(dp, all_reduce(i)));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  writer->close();
  const Process process = read_back(writer->path()).process;
  EXPECT_TRUE(process.closed);
  EXPECT_EQ(process.collectives.size(), 8192U);
  EXPECT_EQ(process.dropped, 20000U - 8192);
  EXPECT_TRUE(process.is_complete(0));
}

TEST(HistoryWriter, ARemovedFileOnlyEndsTheGrowth) {
  const TempDir place;
  const auto writer = open_writer(place, 16U << 20);
  ASSERT_NE(writer, nullptr);
  const GroupHandle dp = define(*writer, "dp");
  const std::string moved = place / "moved.lsh";
  std::filesystem::rename(writer->path(), moved);
  for (std::uint64_t i = 0; i < 20000; ++i)
    writer->issue(dp, all_reduce(i));
  EXPECT_EQ(read_back(moved).process.groups[0].issued, 20000U);
}

TEST(HistoryWriter, GroupsSitesAndChannelsBeyondTheirRoomAreCounted) {
  const TempDir place;
  const auto writer = open_writer(place);
  ASSERT_NE(writer, nullptr);
  GroupHandle last;
  for (int i = 0; i < 513; ++i)
    last = define(*writer, std::to_string(i).c_str());
  writer->issue(last, all_reduce(1));
  std::vector<SiteFrame> frames(kFramesMax);
  for (std::uint64_t key = 1; key < 100; ++key)
    writer->define_site(key << 8, frames.data(), kFramesMax);
  for (int tag = 0; tag < 9000; ++tag)
    writer->returned(writer->issue({0}, send_to(2, tag)));
  writer->close();
  const ProcessFile file = read_back(writer->path());
  EXPECT_THAT(file.missing,
              ElementsAre(HasSubstr("names or call sites found no room"),
                          HasSubstr("1 groups found no room"),
                          HasSubstr("point-to-point operations have no sequence number")));
  EXPECT_EQ(file.process.groups.size(), 512U);
}

TEST(HistoryWriter, NowhereToWriteIsNull) {
  WriterOptions options;
  options.directory = "/dev/null/none";
  EXPECT_EQ(Writer::open(options), nullptr);
  EXPECT_EQ(Writer::open({}), nullptr);
}

TEST(HistoryWriter, NoFileBeforeTheFirstGroup) {
  const TempDir place;
  WriterOptions options;
  options.directory = place.path().c_str();
  options.at_first_group = true;
  const std::unique_ptr<Writer> writer(Writer::open(options));
  ASSERT_NE(writer, nullptr);
  writer->set_rank(2, 4);
  writer->close();
  EXPECT_TRUE(std::filesystem::is_empty(place.path()));
  const GroupHandle group = define(*writer, "dp");
  writer->returned_completed(writer->issue(group, all_reduce(8)));
  writer->close();
  const Process process = read_back(writer->path()).process;
  EXPECT_EQ(process.rank, Rank{2});
  EXPECT_TRUE(process.closed);
  EXPECT_TRUE(process.is_complete(0));
  EXPECT_EQ(process.collectives.size(), 1U);
  EXPECT_EQ(process.capabilities & kForkedChild, 0U);
}

TEST(HistoryFormat, SignaturesLeaveOutWhatMayDiffer) {
  const auto of = [](Op op, std::uint64_t in, std::uint64_t out) {
    return signature(op, DType::kFloat32, ReduceOp::kSum, 0, in, out);
  };
  EXPECT_EQ(of(Op::kAllGather, 3, 10), of(Op::kAllGather, 4, 10));  // uneven
  EXPECT_EQ(of(Op::kScatter, 12, 3), of(Op::kScatter, 0, 3));       // list on the root only
  EXPECT_EQ(of(Op::kAllToAllSingle, 3, 10), of(Op::kAllToAllSingle, 5, 6));  // pairwise
  EXPECT_NE(of(Op::kAllReduce, 3, 3), of(Op::kAllReduce, 4, 4));
  EXPECT_NE(of(Op::kAllReduce, 3, 3), of(Op::kBroadcast, 3, 3));
}

}  // namespace
}  // namespace lockstep::history
