// The call of torch.distributed's that Python frames show.
#include "harness/diagnose/call.h"

#include <gtest/gtest.h>

namespace lockstep::diagnose {
namespace {

constexpr const char* kTorch = "/venv/lib/python3.11/site-packages/torch/";

os::PythonFrame torch(const std::string& file, const std::string& function) {
  return {.file = kTorch + file, .line = 9, .function = function};
}
os::PythonFrame c10d(const std::string& function) {
  return torch("distributed/distributed_c10d.py", function);
}
os::PythonFrame wrapper() { return torch("distributed/c10d_logger.py", "wrapper"); }
os::PythonFrame user() { return {.file = "train.py", .line = 17, .function = "main"}; }

TEST(Call, IsTheOneThatTheProgramCalled) {
  const auto call =
      call_of({c10d("all_gather"), c10d("all_gather_object"), wrapper(), user()}, std::nullopt, 4);
  ASSERT_TRUE(call);
  EXPECT_EQ(call->op, "all_gather_object");
  EXPECT_TRUE(call->members.empty());
}

TEST(Call, HasTheGroupThatItsVariableHolds) {
  os::PythonFrame frame = c10d("all_reduce");
  frame.group = 7;
  const std::vector<os::PythonGroup> groups{{6, "0", {0, 1, 2, 3}}, {7, "dp", {1, 3}}};
  const auto call = call_of({frame, wrapper(), user()}, groups, 4);
  ASSERT_TRUE(call);
  EXPECT_EQ(call->members, (std::vector<std::int32_t>{1, 3}));
  EXPECT_EQ(in_words(*call), "all_reduce of group dp");
}

TEST(Call, OfAMessageHasItsPeer) {
  os::PythonFrame frame = c10d("recv");
  frame.integers = {{"src", 2}};
  const auto call = call_of({frame, wrapper(), user()}, std::nullopt, 4);
  ASSERT_TRUE(call);
  EXPECT_EQ(call->peer, 2);
  EXPECT_EQ(in_words(*call), "recv from rank 2");
}

TEST(Call, ThatFsdpMakesIsToldSo) {
  const auto call = call_of({c10d("all_gather_into_tensor"),
                             torch("distributed/fsdp/_fully_shard/_fsdp_collectives.py", "gather"),
                             torch("nn/modules/module.py", "_call_impl"), user()},
                            std::nullopt, 4);
  ASSERT_TRUE(call);
  EXPECT_EQ(in_words(*call), "all_gather_into_tensor of FSDP");
}

TEST(Call, IsNoneInCodeOfTheProgramThatTorchHasCalled) {
  EXPECT_FALSE(
      call_of({user(), torch("distributed/fsdp/wrap.py", "forward"), user()}, std::nullopt, 4));
}

TEST(Call, IsNoneInOtherCodeOfTorch) {
  EXPECT_FALSE(
      call_of({torch("autograd/graph.py", "_engine_run_backward"), user()}, std::nullopt, 4));
}

}  // namespace
}  // namespace lockstep::diagnose
