// Unmodified programs with the tap in them, entered by environment alone as `lockstep run` does.

#include "harness/entry/entry.h"

#include <gmock/gmock.h>

#include "tests/torch/entered.h"

namespace lockstep::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> operations_of(const Process& process) {
  std::vector<std::string> names;
  for (const Collective& call : process.collectives)
    names.emplace_back(name_of(call.op));
  return names;
}

TEST(Entry, AnUnmodifiedPythonProgramIsSeen) {
  const Entered run = run_entered("two_lines.py", 2);
  EXPECT_THAT(run.statuses, ElementsAre(0, 0)) << run.output;
  EXPECT_THAT(run.output, HasSubstr("rank 1 has 8.0\n"));
  EXPECT_TRUE(run.unseen.empty());
  for (const int rank : {0, 1}) {
    const Process& process = run.of_rank(rank);
    EXPECT_THAT(operations_of(process),
                ElementsAre("all_reduce", "all_reduce", "all_reduce", "barrier"));
    EXPECT_EQ(process.world_size, 2);
    ASSERT_EQ(process.groups.size(), 1U);
    EXPECT_TRUE(process.vouches(0));
  }
}

}  // namespace
}  // namespace lockstep::test
