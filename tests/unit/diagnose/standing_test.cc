// What one rank does, from made stacks and states.
#include "harness/diagnose/standing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::diagnose {
namespace {

using testing::HasSubstr;

constexpr std::int32_t kPid = 71;
constexpr std::uint64_t kSecond = 1'000'000'000;

Frame native(const std::string& function, const std::string& module = "/l/libtorch_cpu.so") {
  return {.module = module, .function = function};
}
Frame python(const std::string& file, std::int32_t line) {
  return {.module = file, .file = file, .line = line, .function = "main"};
}

struct Made {
  std::vector<Frame> frames{};
  std::string wchan{"futex_wait_queue"};
  char state{'S'};
  std::uint64_t wakes{}, cpu_ns{};  ///< Between the two readings.
  std::optional<Call> call{};
  bool moved{};
};

Standing standing(const Made& made) {
  Look look{.world_size = 2, .at_ns = 100 * kSecond};
  look.ranks.push_back({.rank = Rank{1},
                        .pid = kPid,
                        .moved = made.moved,
                        .asleep_since_ns = 40 * kSecond,
                        .call = made.call});
  look.run.live = true;
  look.run.starts.push_back({.role = Role::kRank, .rank = Rank{1}, .pid = kPid});
  look.run.stacks.push_back(
      {.at_ns = 100 * kSecond, .rank = Rank{1}, .pid = kPid, .tid = kPid, .frames = made.frames});
  for (const bool last : {false, true})
    look.run.states.push_back({.at_ns = 100 * kSecond + (last ? kSecond / 2 : 0),
                               .rank = Rank{1},
                               .pid = kPid,
                               .threads = {{.tid = kPid,
                                            .state = made.state,
                                            .wchan = made.wchan,
                                            .context_switches = last ? made.wakes : 0,
                                            .cpu_ns = last ? made.cpu_ns : 0}}});
  return standing_of(look, look.ranks.front());
}

TEST(Standing, InTheReductionOfDdp) {
  const Standing one =
      standing({.frames = {native("pthread_cond_wait", "/l/libc.so.6"),
                           native("c10d::Reducer::finalize_backward()"), python("train.py", 23)}});
  EXPECT_EQ(one.stand, Stand::kInCall);
  EXPECT_THAT(one.doing, HasSubstr("DDP in backward"));
  ASSERT_TRUE(one.site);
  EXPECT_EQ(one.site->line, 23);
  EXPECT_EQ(one.for_ns, 60 * kSecond);
}

TEST(Standing, Asleep) {
  const Standing one = standing({.frames = {python("train.py", 9)}, .wchan = "hrtimer_nanosleep"});
  EXPECT_EQ(one.stand, Stand::kHeld);
  EXPECT_EQ(one.held, Doing::kTimer);
}

TEST(Standing, InACallThatItsFramesName) {
  const Standing one = standing({.frames = {python("train.py", 9)}, .call = Call{.op = "barrier"}});
  EXPECT_EQ(one.stand, Stand::kInCall);
  EXPECT_EQ(one.doing, "in barrier");
}

TEST(Standing, WhoWokeUpInACallIsInNone) {
  const Standing one =
      standing({.frames = {python("train.py", 9)}, .wakes = 3, .call = Call{.op = "barrier"}});
  EXPECT_EQ(one.stand, Stand::kMoves);
}

TEST(Standing, AtTwoLinesInTwoLooks) {
  EXPECT_EQ(standing({.frames = {python("train.py", 9)}, .moved = true}).stand, Stand::kMoves);
}

TEST(Standing, Computes) {
  const Standing one = standing(
      {.frames = {python("train.py", 9)}, .wchan = "", .state = 'R', .cpu_ns = kSecond / 2});
  EXPECT_EQ(one.stand, Stand::kBusy);
}

TEST(Standing, Stopped) {
  const Standing one = standing({.frames = {python("train.py", 9)}, .state = 'T'});
  EXPECT_EQ(one.held, Doing::kStopped);
}

TEST(Standing, AWaitThatIsNotKnownIsNotGuessed) {
  const Standing one = standing({.frames = {python("train.py", 9)}, .wchan = "some_driver_wait"});
  EXPECT_EQ(one.stand, Stand::kUnseen);
}

}  // namespace
}  // namespace lockstep::diagnose
