// What the tap writes of real Gloo traffic: every collective of a DDP step with its true arguments,
// every c10d operator, groups that come again, and calls that go past it.

#include "harness/tap/tap.h"

#include <ATen/ATen.h>
#include <c10/core/impl/FakeGuardImpl.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <fstream>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "fixtures/implementations/ddp.h"
#include "fixtures/implementations/process_group.h"
#include "harness/tap/throw_site.h"
#include "tests/torch/ranks.h"
#include "tests/torch/tapped.h"

namespace lockstep::test {
namespace {

namespace fs = std::filesystem;
using at::Tensor;
using history::DType;
using history::Op;
using history::ReduceOp;
using Tensors = std::vector<Tensor>;

std::string shown(const Collective& c) {
  return std::string(name_of(c.op)) + " " + std::to_string(c.numel_in) + "->" +
         std::to_string(c.numel_out) + " " + std::string(name_of(c.dtype)) + " " +
         std::string(name_of(c.reduce_op)) + " root " + std::to_string(c.root);
}

TEST(Tap, SeesEveryCollectiveOfADdpStep) {
  const std::vector<Process> seen = seen_on_two([](RankContext& context) {
    const Tensor weight = at::ones({3}, at::kDouble).set_requires_grad(true);
    const Tensor buffer = at::ones({2}, at::kDouble);
    parallel::Module module;
    module.parameters = {{"weight", weight}};
    module.buffers = [&] { return std::vector<parallel::NamedTensor>{{"buffer", buffer}}; };
    module.forward = [&](const Tensor& input) { return (weight * input).sum(); };
    const auto ddp = parallel::Ddp::wrap(std::move(module), context.group);
    for (int step = 0; step < 2; ++step)
      ddp->forward(at::ones({3}, at::kDouble)).backward();
    context.group->barrier()->wait();
  });
  ASSERT_EQ(seen.size(), 2U);
  for (const Process& process : seen) {
    std::vector<std::string> ops;
    for (const Collective& c : process.collectives) {
      ops.push_back(shown(c));
      EXPECT_TRUE(c.returned_ns) << ops.back();
      EXPECT_TRUE(c.completed_ns) << ops.back();
      EXPECT_FALSE(c.failed) << ops.back();
      EXPECT_EQ(c.seq, ops.size() - 1) << ops.back();
      EXPECT_GT(c.site, 0U) << ops.back();
      EXPECT_FALSE(process.sites.at(c.site).frames.empty()) << ops.back();
    }
    const std::vector<std::string> expected{
        "all_gather 1->2 int64 none root -1",   // Parameters' dtypes, shapes and strides:
        "all_gather 28->56 int8 none root -1",  // so many letters, and they.
        "broadcast 5->5 float64 none root 0",   // Initial parameters and buffers.
        "broadcast 2->2 float64 none root 0",   // Buffers of the first forward.
        "all_reduce 3->3 float64 sum root -1",  // Its gradients.
        "broadcast 2->2 int32 none root 0",     // The rebuilt buckets: indices,
        "broadcast 1->1 int32 none root 0",     // sizes.
        "broadcast 2->2 float64 none root 0",  "all_reduce 3->3 float64 sum root -1",
        "barrier 0->0 none none root -1"};
    EXPECT_EQ(ops, expected);
    ASSERT_EQ(process.groups.size(), 1U);
    EXPECT_EQ(process.groups[0].name, "world");
    EXPECT_EQ(process.groups[0].size, 2);
    EXPECT_EQ(process.groups[0].my_rank, process.rank->value);
    EXPECT_EQ(process.groups[0].ranks, (std::vector<Rank>{Rank{0}, Rank{1}}));
    EXPECT_TRUE(process.is_complete(0));
    EXPECT_TRUE(process.closed);
  }
  EXPECT_EQ(seen[0].sites.size(), seen[1].sites.size());
}

// Every operator of c10d that Gloo has, on two ranks. By the names that every supported torch has.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
template <class Group>
void every_operation(Group& group, int rank) {
  const auto full = [](std::int64_t n) { return at::ones({n}, at::kFloat); };
  const auto wait = [](const c10::intrusive_ptr<c10d::Work>& work) { work->wait(); };
  Tensors one{full(4)};
  Tensors two{full(2), full(3)};
  wait(group.allreduce(one, {.reduceOp = c10d::ReduceOp::MAX}));
  wait(group.allreduce_coalesced(two));
  wait(group.broadcast(one, {.rootRank = 1}));
  wait(group.reduce(one, {.reduceOp = c10d::ReduceOp::SUM, .rootRank = 1}));
  std::vector<Tensors> lists{{full(4), full(4)}};
  wait(group.allgather(lists, one));
  Tensor wide = full(8);
  wait(group._allgather_base(wide, one[0]));
  std::vector<Tensors> coalesced{{full(4)}, {full(4)}};
  wait(group.allgather_coalesced(coalesced, one));
  Tensors wides{wide};
  wait(group.allgather_into_tensor_coalesced(wides, one));
  wait(group.reduce_scatter(one, lists));
  wait(group._reduce_scatter_base(one[0], wide));
  wait(group.reduce_scatter_tensor_coalesced(one, wides));
  std::vector<Tensors> none;
  wait(rank == 0 ? group.gather(lists, one) : group.gather(none, one));
  wait(rank == 0 ? group.scatter(one, lists) : group.scatter(one, none));
  std::vector<std::int64_t> splits{rank == 0 ? 3 : 5, rank == 0 ? 5 : 3};
  std::vector<std::int64_t> sent = splits;
  Tensor received = full(8);
  wait(group.alltoall_base(received, wide, splits, sent));
  wait(group.barrier());
  group.monitoredBarrier({});
  if (rank == 0) {
    wait(group.send(one, 1, 7));
    wait(group.send(one, 1, 8));
  } else {
    wait(group.recv(one, 0, 7));
    wait(group.recvAnysource(one, 8));
  }
  wait(group.allreduce(one));
}

void expect_every_operation(const std::vector<Process>& seen) {
  ASSERT_EQ(seen.size(), 2U);
  std::uint64_t unmatched = 0;
  for (int rank = 0; rank < 2; ++rank) {
    const Process& process = seen[static_cast<std::size_t>(rank)];
    std::vector<std::string> ops;
    for (const Collective& c : process.collectives) {
      ops.push_back(shown(c));
      EXPECT_TRUE(c.returned_ns) << ops.back();
    }
    const bool first = rank == 0;
    const std::vector<std::string> expected{
        "all_reduce 4->4 float32 max root -1",
        "all_reduce_coalesced 5->5 float32 sum root -1",
        "broadcast 4->4 float32 none root 1",
        "reduce 4->4 float32 sum root 1",
        "all_gather 4->8 float32 none root -1",
        "all_gather_into_tensor 4->8 float32 none root -1",
        "all_gather_coalesced 4->8 float32 none root -1",
        "all_gather_coalesced 4->8 float32 none root -1",
        "reduce_scatter 8->4 float32 sum root -1",
        "reduce_scatter_tensor 8->4 float32 sum root -1",
        "reduce_scatter_coalesced 8->4 float32 sum root -1",
        first ? "gather 4->8 float32 none root 0" : "gather 4->0 float32 none root 0",
        first ? "scatter 8->4 float32 none root 0" : "scatter 0->4 float32 none root 0",
        "all_to_all_single 8->8 float32 none root -1",
        "barrier 0->0 none none root -1",
        "monitored_barrier 0->0 none none root -1",
        first ? "send 4->0 float32 none root 1" : "recv 0->4 float32 none root 0",
        first ? "send 4->0 float32 none root 1" : "recv_any 0->4 float32 none root -1",
        "all_reduce 4->4 float32 sum root -1"};
    EXPECT_EQ(ops, expected);
    EXPECT_EQ(process.groups.size(), 1U) << "an operation looked like a new group";
    EXPECT_TRUE(process.is_complete(0)) << "its step of the counter is not known";
    ASSERT_GE(process.collectives.size(), 18U);
    EXPECT_EQ(process.collectives[16].tag, 7);
    EXPECT_EQ(process.collectives[17].tag, 8);
    const auto exchange = process.collectives[13].exchange;
    unmatched += history::share_of_sender(first ? 0 : 1) * exchange.sent -
                 history::share_of_receiver(first ? 0 : 1) * exchange.received;
  }
  EXPECT_EQ(unmatched, 0U);
  EXPECT_EQ(seen[0].collectives[4].counts_hash, seen[1].collectives[4].counts_hash);
}

TEST(Tap, SeesEveryOperationAndVouches) {
  expect_every_operation(
      seen_on_two([](RankContext& context) { every_operation(*context.group, context.rank); }));
}

c10::intrusive_ptr<c10d::Store> store_with_prefix(const RankContext& context) {
  return c10::make_intrusive<c10d::PrefixStore>(
      "3", c10::make_intrusive<c10d::PrefixStore>(
               "members", c10::make_intrusive<c10d::FileStore>(
                              (context.directory / "members").string(), context.world)));
}

TEST(Tap, SeesEveryOperationOfABackendAlone) {
  const std::vector<Process> seen = seen_on_two([](RankContext& context) {
    const auto backend = context.group->getDefaultBackend();
    tap::backend_created(*backend, *store_with_prefix(context));
    every_operation(*backend, context.rank);
  });
  expect_every_operation(seen);
  for (const Process& process : seen) {
    EXPECT_NE(process.capabilities & history::kSeesBackends, 0U);
    EXPECT_EQ(process.groups[0].name, "members/3");
    EXPECT_TRUE(process.groups[0].named_by_store);
  }
  EXPECT_NE(seen[0].groups[0].store, 0U);
  EXPECT_EQ(seen[0].groups[0].store, seen[1].groups[0].store);
}

TEST(Tap, AGroupAroundABackendIsThatBackend) {
  const std::vector<Process> seen = seen_on_two([](RankContext& context) {
    Tensors one{at::ones({1})};
    const auto backend = context.group->getDefaultBackend();
    tap::backend_created(*backend, *store_with_prefix(context));
    context.group->allreduce(one)->wait();
    backend->allreduce(one)->wait();
  });
  ASSERT_EQ(seen.size(), 2U);
  for (const Process& process : seen) {
    ASSERT_EQ(process.groups.size(), 1U);
    EXPECT_EQ(process.groups[0].name, "world");
    EXPECT_FALSE(process.groups[0].named_by_store);
    EXPECT_EQ(process.groups[0].issued, 2U);
    EXPECT_TRUE(process.is_complete(0));
  }
}

/// The history of rank 0 after `body` on every rank; empty if there is none.
std::vector<Process> seen_on_rank_0(int world,
                                    const std::function<std::string(RankContext&)>& body) {
  std::vector<Process> seen;
  run_ranks(world, body, [&](const fs::path& directory) { seen = {read_rank(directory, 0)}; });
  return seen;
}

TEST(Tap, CallsPastItEndTheVouching) {
  const std::vector<Process> seen = seen_on_rank_0(1, [](RankContext& context) -> std::string {
    begin_tap(context);
    Tensors one{at::ones({1})};
    context.group->allreduce(one)->wait();
    // By name, not by the table of virtual functions.
    static_cast<c10d::ProcessGroupGloo&>(*context.group->getDefaultBackend())
        .c10d::ProcessGroupGloo::allreduce(one, {})
        ->wait();
    context.group->allreduce(one)->wait();
    return "";
  });
  ASSERT_EQ(seen.size(), 1U);
  ASSERT_EQ(seen[0].groups.size(), 1U);
  EXPECT_FALSE(seen[0].is_complete(0));
  EXPECT_FALSE(seen[0].closed) << "nobody said stop";
}

TEST(Tap, AGroupMetInUseIsNotVouchedFor) {
  const std::vector<Process> seen = seen_on_rank_0(1, [](RankContext& context) -> std::string {
    Tensors one{at::ones({1})};
    context.group->allreduce(one)->wait();
    begin_tap(context);
    context.group->allreduce(one)->wait();
    return "";
  });
  ASSERT_EQ(seen.size(), 1U);
  ASSERT_EQ(seen[0].groups.size(), 1U);
  EXPECT_FALSE(seen[0].is_complete(0));
}

TEST(Tap, AGroupMadeAgainUnderItsNameIsAnotherGeneration) {
  const std::vector<Process> seen = seen_on_rank_0(1, [](RankContext& context) -> std::string {
    begin_tap(context);
    for (int again = 0; again < 20; ++again) {
      Tensors one{at::ones({1})};
      context.group->allreduce(one)->wait();
      context.group->allreduce(one)->wait();
      context.group.reset();  // Its address is free again.
      context.group = parallel::connect_gloo(
          {.file = (context.directory / ("again" + std::to_string(again))).string(),
           .timeout = std::chrono::seconds(20)});
    }
    return "";
  });
  ASSERT_EQ(seen.size(), 1U);
  ASSERT_EQ(seen[0].groups.size(), 20U);
  for (std::uint32_t i = 0; i < 20; ++i) {
    EXPECT_EQ(seen[0].groups[i].generation, i);
    EXPECT_EQ(seen[0].groups[i].issued, 2U);
    EXPECT_TRUE(seen[0].is_complete(i));
  }
}

TEST(Tap, AFailedCollectiveIsSeenToFail) {
  const std::vector<Process> seen = seen_on_rank_0(2, [](RankContext& context) -> std::string {
    begin_tap(context);
    Tensors one{at::ones({1})};
    context.group->allreduce(one)->wait();
    if (context.rank == 1)
      return "";  // Leaves: the connection closes.
    bool failed = false;
    try {
      context.group->allreduce(one)->wait();
    } catch (const std::exception&) {
      failed = true;
    }
    require(failed, "an error of the transport");
    return "";
  });
  ASSERT_EQ(seen.size(), 1U);
  ASSERT_EQ(seen[0].collectives.size(), 2U);
  EXPECT_FALSE(seen[0].collectives[0].failed);
  EXPECT_TRUE(seen[0].collectives[1].completed_ns);
  EXPECT_TRUE(seen[0].collectives[1].failed);
}

/// Said to be on `device`, which need not be there.
Tensor two_floats_on(at::Device device) {
  static float memory[2];
  return at::for_blob(memory, {2})
      .options(at::TensorOptions(at::kFloat).device(device))
      .target_device(device)
      .make_tensor();
}

TEST(Tap, TheGpuOfItsFirstTensorIsTold) {
  const auto device_of = [](bool initialised) {
    const std::vector<Process> seen =
        seen_on_rank_0(1, [initialised](RankContext& context) -> std::string {
          begin_tap(context);
          void* const driver = ::dlopen(LOCKSTEP_CUDA_STAND_IN, RTLD_NOW);
          require(driver != nullptr, "the stand-in for CUDA");
          if (initialised)
            reinterpret_cast<int (*)(unsigned)>(::dlsym(driver, "cuInit"))(0);
          const at::Device second(at::kCUDA, 1);
          for (const at::Device device : {at::Device(at::kCPU), second, at::Device(at::kCUDA, 0)}) {
            Tensors one{two_floats_on(device)};
            try {
              context.group->allreduce(one)->wait();
            } catch (const std::exception&) {  // Nothing can add them up here.
            }
          }
          return "";
        });
    return seen.at(0).device;
  };
  const std::optional<Device> device = device_of(true);
  ASSERT_TRUE(device);
  EXPECT_EQ(device->index, 1);
  EXPECT_EQ(device->visible, 2);
  EXPECT_EQ(device->uuid, "a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1");
  EXPECT_FALSE(device_of(false)) << "the driver does not say";
}

const at::Device kGpu(at::kCUDA, 0);

/// A collective that has been put on a GPU.
class OnGpu : public c10d::Work {
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  c10::intrusive_ptr<c10::ivalue::Future> future_ = c10::make_intrusive<c10::ivalue::Future>(
      c10::ListType::create(c10::TensorType::get()), std::vector<at::Device>{kGpu});
};

class GpuBackend : public c10d::Backend {
 public:
  explicit GpuBackend(std::string name) : Backend(0, 1), name_(std::move(name)) {}
  const std::string getBackendName() const override { return name_; }
  c10::intrusive_ptr<c10d::Work> allreduce(Tensors& /*tensors*/,
                                           const c10d::AllreduceOptions& /*options*/) override {
    return c10::make_intrusive<OnGpu>();
  }

 private:
  std::string name_;
};

TEST(Tap, OnAGpuTheEndOfGloosCollectivesAloneIsTold) {
  const auto issued_on = [](const std::string& backend) {
    return seen_on_rank_0(1, [&](RankContext& context) -> std::string {
      begin_tap(context);
      const c10::impl::FakeGuardImpl<at::kCUDA> cuda;
      const c10::impl::DeviceGuardImplRegistrar as_if_there_were(at::kCUDA, &cuda);
      context.group->setBackend(at::kCUDA, c10d::ProcessGroup::BackendType::CUSTOM,
                                c10::make_intrusive<GpuBackend>(backend));
      Tensors one{two_floats_on(kGpu)};
      context.group->allreduce(one);
      return "";
    });
  };
  for (const bool told : {true, false}) {
    const std::vector<Process> seen = issued_on(told ? "gloo" : "nccl");
    ASSERT_EQ(seen.at(0).collectives.size(), 1U);
    EXPECT_FALSE(seen[0].collectives[0].completed_ns);
    EXPECT_EQ(seen[0].collectives[0].completion_unseen, !told);
  }
}

TEST(Tap, ACallWhoseArgumentsAreRefusedHidesNothing) {
  const std::vector<Process> seen = seen_on_rank_0(2, [](RankContext& context) -> std::string {
    begin_tap(context);
    Tensors one{at::ones({1})};
    context.group->allreduce(one)->wait();
    std::vector<Tensors> results{{at::ones({1}), at::ones({2})}};
    bool refused = false;
    try {
      context.group->allgather(results, one)->wait();
    } catch (const std::exception&) {
      refused = true;
    }
    require(refused, "results of two sizes");
    context.group->allreduce(one)->wait();
    return "";
  });
  ASSERT_EQ(seen.size(), 1U);
  ASSERT_EQ(seen[0].collectives.size(), 3U);
  EXPECT_TRUE(seen[0].collectives[1].failed);
  EXPECT_TRUE(seen[0].groups[0].seen_from_creation);
  EXPECT_TRUE(seen[0].is_complete(0));
  EXPECT_GT(seen[0].groups[0].timeout_ms.value_or(0), 0);
}

}  // namespace
}  // namespace lockstep::test
