// Goal: a deadlock is proven where a rank issues its collectives from other threads than its main
// one, which waits for them or for the end of their work; and only where nothing else may wake it.
#include <gtest/gtest.h>

#include <csignal>
#include <functional>

#include "checkers/hang/deadlock.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

using checkers::certain_deadlock;

/// Rank 1 is idle in the conversation, the others wait for it for ever.
lockstep::Run proven_run() {
  const Row step = times(3, {all_reduce("dp", 8)});
  const Row waits{all_reduce("dp", 8).pending()};
  lockstep::Run run = make_run({step + waits, step, step + waits});
  const std::uint64_t end = stall_ns(run);
  for (const Rank rank : RankSet::all(3))
    ask(run, rank, "step", kStart - kMs,
        rank == Rank{1} ? std::optional(end - 10 * kMs) : std::nullopt);
  hang(run, false);
  return run;
}

/// Rank 0 issues in a thread of its own, 2001, which its main thread joins. Rank 1 is idle for
/// ever.
struct Joined {
  lockstep::Run run = proven_run();
  StackSample* main{};
  Joined() {
    Process& process = process_of(run, Rank{0});
    for (Collective& call : process.collectives)
      call.thread = 2001;
    for (StateSample& sample : run.states) {
      if (sample.rank != Rank{0})
        continue;
      sample.caught_signals = 1U << (SIGINT - 1);
      sample.threads.front().for_own_threads = sample.threads.front().for_ever = true;
      sample.threads.push_back({2001, 'S', "futex_do_wait", 3, kMs});
    }
    for (StackSample& stack : run.stacks) {
      if (stack.rank == Rank{0})
        main = &stack;
    }
    StackSample issuer = *main;
    issuer.tid = 2001;
    *main = stack_of(run, Rank{0}, {"PyThread_acquire_lock_timed"});
    main->frames.push_back({"/py/threading.py", 7, "", 1112, "Thread._wait_for_tstate_lock", {}});
    const auto at = main - run.stacks.data();
    run.stacks.push_back(issuer);
    main = run.stacks.data() + at;
  }
  void each_sample(const std::function<void(StateSample&)>& change) {
    for (StateSample& sample : run.states) {
      if (sample.rank == Rank{0})
        change(sample);
    }
  }
  [[nodiscard]] bool is_proven() const { return certain_deadlock(run).has_value(); }
};

TEST(IssuingThread, AMainThreadThatJoinsAnIssuerGoesOnWhenThatDoes) {
  EXPECT_TRUE(Joined().is_proven());
}

TEST(IssuingThread, AMainThreadThatSomethingElseMayWake) {
  const auto proven_with = [](const std::function<void(Joined&)>& change) {
    Joined joined;
    change(joined);
    return joined.is_proven();
  };
  EXPECT_FALSE(proven_with([](Joined& joined) {
    joined.each_sample([](StateSample& sample) { sample.caught_signals.reset(); });
  })) << "its handlers are not known";
  EXPECT_FALSE(proven_with([](Joined& joined) {
    joined.each_sample([](StateSample& sample) { *sample.caught_signals |= 1U << (SIGALRM - 1); });
  })) << "a handler may raise";
  EXPECT_FALSE(proven_with([](Joined& joined) {
    joined.each_sample([](StateSample& sample) { sample.threads.front().for_own_threads = false; });
  })) << "another process may wake it";
  EXPECT_FALSE(proven_with([](Joined& joined) {
    joined.each_sample([](StateSample& sample) { sample.threads.front().for_ever = false; });
  })) << "it waits for a while";
  EXPECT_FALSE(proven_with([](Joined& joined) {
    joined.main->frames.back().function = "Condition.wait";
  })) << "anybody may put something into a queue";
}

/// As LibTorch's.
StackSample in_libtorch(const lockstep::Run& run, Rank rank, std::int32_t tid,
                        const std::vector<std::string>& functions) {
  StackSample stack = stack_of(run, rank, {"pthread_cond_wait"});
  stack.frames.front().module = "/lib/libc.so.6";
  for (const std::string& function : functions)
    stack.frames.push_back({"/lib/libtorch_cpu.so", 7, "", 0, function, {}});
  stack.tid = tid;
  return stack;
}

const std::string kFuture = "c10::ivalue::Future::wait()";
const std::string kExecute = "torch::autograd::Engine::execute(std::vector<...>)";
const std::string kThreadMain = "torch::autograd::Engine::thread_main(std::shared_ptr<...>)";
const std::string kThreadInit = "torch::autograd::Engine::thread_init(int)";

/// Rank 0 issues in a thread of autograd's, which main waits for in backward().
bool proven_with_autograd(const std::vector<std::string>& main,
                          const std::vector<std::string>& issuer) {
  Joined joined;
  *joined.main = in_libtorch(joined.run, Rank{0}, joined.main->tid, main);
  joined.run.stacks.back() = in_libtorch(joined.run, Rank{0}, 2001, issuer);
  return joined.is_proven();
}

TEST(IssuingThread, AMainThreadInBackwardGoesOnWhenAutogradsDoes) {
  const std::vector<std::string> issuer{"c10d::Reducer::finalize_backward()", kThreadMain,
                                        kThreadInit};
  EXPECT_TRUE(proven_with_autograd({kFuture, kExecute}, issuer));
  EXPECT_TRUE(proven_with_autograd({kThreadMain, kExecute}, issuer)) << "it may be given a part";
  EXPECT_FALSE(proven_with_autograd({kFuture, "torch::jit::fork()"}, issuer)) << "of other work";
  EXPECT_FALSE(proven_with_autograd({"user::hook()", kThreadMain, kExecute}, issuer));
  EXPECT_FALSE(proven_with_autograd({kFuture, kExecute}, {"c10d::Reducer::finalize_backward()"}))
      << "the issuer is no thread of autograd's";
}

TEST(IssuingThread, AThreadOfAutogradsThatHasNothingToDo) {
  lockstep::Run stuck = proven_run();
  Process& process = process_of(stuck, Rank{1});
  process.collectives[1].thread = 2001;
  for (StateSample& sample : stuck.states) {
    if (sample.rank == Rank{1})
      sample.threads.push_back({2001, 'S', "futex_do_wait", 3, kMs});
  }
  const auto proven_with = [&](const std::vector<std::string>& functions) {
    lockstep::Run run = stuck;
    run.stacks.push_back(in_libtorch(run, Rank{1}, 2001, functions));
    return certain_deadlock(run).has_value();
  };
  EXPECT_TRUE(proven_with({kThreadMain, kThreadInit}));
  EXPECT_TRUE(proven_with({"torch::autograd::ReadyQueue::pop()", kThreadMain, kThreadInit}));
  EXPECT_FALSE(proven_with({"user::hook()", kThreadMain, kThreadInit})) << "it works";
  EXPECT_FALSE(proven_with({kThreadMain, kExecute})) << "it has called backward() itself";
}

}  // namespace
}  // namespace lockstep::testing
