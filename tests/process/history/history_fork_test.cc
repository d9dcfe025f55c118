// A forked child writes a file of its own from its first record on, and costs nothing before.
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <thread>

#include "tests/unit/history/history_support.h"

namespace lockstep::history {
namespace {

using testing::HasSubstr;

std::size_t files_in(const TempDir& place) {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator(place.path()), {}));
}

/// Runs `body` in a forked child, which must exit with 0.
template <class Body>
void in_child(Body body) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
}

TEST(HistoryFork, AChildThatIssuesNothingCostsNothing) {
  const TempDir place;
  const auto writer = open_writer(place);
  ASSERT_NE(writer, nullptr);
  const GroupHandle dp = define(*writer, "dp");
  const Ticket open = writer->issue(dp, all_reduce(1));
  in_child([&] {
    writer->returned(
        open);  // The parent's call: not the child's to end, and its mapping is not there.
    writer->completed(open);
    writer->met_late(GroupHandle{});
    writer->close();
  });
  EXPECT_EQ(files_in(place), 1U);
  const Process parent = read_back(writer->path()).process;
  EXPECT_FALSE(parent.collectives.at(0).returned_ns);
  EXPECT_FALSE(parent.closed);
}

TEST(HistoryFork, AChildHasItsOwnFileAndKnowsItCameLate) {
  const TempDir place;
  const auto writer = open_writer(place);
  ASSERT_NE(writer, nullptr);
  const GroupHandle dp = define(*writer, "dp");
  const SiteFrame frame{"train.py", 1, "step", 9};
  const std::uint32_t site = writer->define_site(5, &frame, 1);
  const Ticket open = writer->issue(dp, all_reduce(1));
  // Locks held by other threads at the moment of the fork must not hold the child.
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    const GroupHandle other = define(*writer, "other");
    while (!stop)
      writer->returned_completed(writer->issue(other, all_reduce(2)));
  });
  for (int i = 0; i < 20; ++i) {
    in_child([&] {
      Issue call = all_reduce(3);
      call.site = site;
      const Ticket mine = writer->issue(dp, call);
      writer->completed(open);  // Of the parent: no effect.
      writer->returned_completed(mine);
      const GroupHandle fresh = define(*writer, "fresh");
      writer->returned_completed(writer->issue(fresh, all_reduce(4)));
      writer->close();
    });
  }
  stop = true;
  busy.join();
  EXPECT_EQ(files_in(place), 21U);
  EXPECT_FALSE(read_back(writer->path()).process.collectives.at(0).completed_ns);
  for (const auto& entry : std::filesystem::directory_iterator(place.path())) {
    if (entry.path() == writer->path())
      continue;
    const ProcessFile file = read_back(entry.path().string());
    const Process& child = file.process;
    EXPECT_TRUE(child.closed);
    EXPECT_NE(child.pid, getpid());
    EXPECT_EQ(child.parent_pid, getpid());
    EXPECT_NE(child.capabilities & kForkedChild, 0U);
    ASSERT_EQ(child.collectives.size(), 2U);
    EXPECT_EQ(child.collectives[0].seq, 0U);
    EXPECT_EQ(child.collectives[0].thread, static_cast<std::uint32_t>(child.pid));
    EXPECT_EQ(child.sites.at(child.collectives[0].site).frames.at(0).function, "step");
    EXPECT_FALSE(child.is_complete(0));  // The parent used it before.
    EXPECT_TRUE(child.is_complete(child.collectives[1].group));
    EXPECT_EQ(child.groups[child.collectives[1].group].name, "fresh");
  }
}

}  // namespace
}  // namespace lockstep::history
