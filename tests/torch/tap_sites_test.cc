// Where a call came from: stacks that look alike, at one place.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "tests/torch/tapped.h"

namespace lockstep::test {
namespace {

using Tensors = std::vector<at::Tensor>;

__attribute__((noinline)) void reduce_once(c10d::ProcessGroup& group) {
  Tensors one{at::ones({1}, at::kFloat)};
  group.allreduce(one)->wait();
}

TEST(Tap, AFunctionThatIsCalledFromTwoLinesHasTwoSites) {
  const std::vector<Process> seen = seen_on_two([](RankContext& context) {
    for (int round = 0; round < 3; ++round) {
      reduce_once(*context.group);
      reduce_once(*context.group);
    }
  });
  ASSERT_EQ(seen.size(), 2U);
  const std::vector<Collective>& calls = seen[0].collectives;
  ASSERT_EQ(calls.size(), 6U);
  for (std::size_t i = 2; i < calls.size(); ++i)
    EXPECT_EQ(calls[i].site, calls[i - 2].site);
  EXPECT_NE(calls[0].site, calls[1].site);
  const auto& frames = seen[0].sites.at(calls[0].site).frames;
  EXPECT_EQ(frames.size(), seen[0].sites.at(calls[1].site).frames.size());
}

}  // namespace
}  // namespace lockstep::test
