// Goal: a rank that others waited for when the run was ended is said to be stalled on what the
// kernel says it sleeps on (LS303), and nobody is named where that is not known.
#include "checkers/hang/stall.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "checkers/hang/deadlock.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

/// Rank 1 does not come to the third call, and the user loses patience.
lockstep::Run stalled(const std::function<void(ThreadState&)>& change, const Call& waits,
                      std::chrono::milliseconds patience = kPatience) {
  const Row before = times(2, {all_reduce("dp", 8).at("t.py", 5)});
  lockstep::Run run = make_run({before + Row{waits.at("t.py", 5)}, before});
  hang(run);
  interrupt(run, patience);
  for (StateSample& sample : run.states) {
    if (sample.rank == Rank{1})
      change(thread_of(sample, 1001));
  }
  return run;
}

lockstep::Run stalled(const std::function<void(ThreadState&)>& change,
                      std::chrono::milliseconds patience = kPatience) {
  return stalled(change, all_reduce("dp", 8).pending(), patience);
}

Finding said_of(const lockstep::Run& run) {
  const Verdict verdict = checkers::Deadlock().check(run);
  EXPECT_EQ(verdict.findings.size(), 1U);
  return verdict.findings.empty() ? Finding{} : verdict.findings.front();
}

TEST(Stall, WhatTheAbsentRankSleepsOnIsNamed) {
  const auto in = [](const char* wchan) {
    return stalled([=](ThreadState& thread) { thread.wchan = wchan; });
  };
  const Finding sleeping = said_of(in("hrtimer_nanosleep"));
  EXPECT_EQ(sleeping.code, Code::kStalledOutside);
  EXPECT_EQ(sleeping.also, std::vector<Code>{Code::kAbsentRank});
  EXPECT_EQ(sleeping.culprits, RankSet{Rank{1}});
  EXPECT_EQ(sleeping.confidence, Confidence::kLikely);
  EXPECT_EQ(
      sleeping.headline,
      "rank 1 sleeps, and had not entered all_reduce dp#2 when the run was ended; rank 0 waited");
  EXPECT_EQ(said_of(in("do_sys_poll")).code, Code::kStalledOutside);
  EXPECT_EQ(said_of(in("anon_pipe_read")).code, Code::kStalledOutside);
  EXPECT_EQ(said_of(stalled([](ThreadState& thread) {
              thread.state = 'T';
            })).headline.rfind("rank 1 is stopped by a signal", 0),
            0U);
}

TEST(Stall, WhoWaitsForWhatAnotherRankHasIsNotNamed) {
  lockstep::Run run = stalled([](ThreadState& thread) { thread.wchan = "flock_lock_inode_wait"; });
  EXPECT_EQ(said_of(run).culprits, RankSet{Rank{1}});
  for (StateSample& sample : run.states) {
    if (sample.rank == Rank{1})
      sample.held_by = {Rank{0}};
  }
  const Finding finding = said_of(run);
  EXPECT_EQ(finding.code, Code::kStalledOutside);
  EXPECT_TRUE(finding.culprits.empty());
  EXPECT_EQ(finding.affected, RankSet::all(2));
  EXPECT_EQ(finding.headline,
            "rank 1 waits for a locked file, which rank 0 has, and had not entered all_reduce dp#2 "
            "when the run was ended; rank 0 waited");
}

/// Of three ranks these do not come to the third call; `change` says what they do instead.
lockstep::Run late(const RankSet& ranks,
                   const std::function<void(StateSample&, ThreadState&)>& change) {
  const Row before = times(2, {all_reduce("dp", 8).at("t.py", 5)});
  std::vector<Row> rows;
  for (const Rank rank : RankSet::all(3))
    rows.push_back(
        ranks.contains(rank) ? before : before + Row{all_reduce("dp", 8).pending().at("t.py", 5)});
  lockstep::Run run = make_run(rows);
  hang(run);
  interrupt(run);
  for (StateSample& sample : run.states) {
    if (sample.rank && ranks.contains(*sample.rank))
      change(sample, thread_of(sample, sample.pid));
  }
  return run;
}

void waits_for_own_threads(StateSample& /*sample*/, ThreadState& thread) {
  thread.wchan = "futex_do_wait";
  thread.for_own_threads = true;
}

/// Whatever this rank issued went to its GPU, and its main thread is there, inside of `functions`.
void works_on_gpu(lockstep::Run& run, Rank rank, const std::vector<std::string>& functions) {
  for (Collective& call : process_of(run, rank).collectives) {
    call.completed_ns.reset();
    call.returned_ns = call.issued_ns + 1;
    call.completion_unseen = true;
  }
  std::erase_if(run.stacks, [&](const StackSample& stack) { return stack.rank == rank; });
  run.stacks.push_back(stack_of(run, rank, functions));
  run.stacks.back().frames.push_back({"/t.py", 7, "/t.py", 9, "step", {}});
}

TEST(Stall, WhoWaitsForItsGpuWaitsForThoseWhoDidNotCome) {
  const auto waiting_in = [](const std::vector<std::string>& functions) {
    lockstep::Run run = stalled([](ThreadState& thread) { thread.wchan = "hrtimer_nanosleep"; });
    works_on_gpu(run, Rank{0}, functions);
    return run;
  };
  const Finding finding = said_of(waiting_in({"", "cuStreamSynchronize", "cudaStreamSynchronize"}));
  EXPECT_EQ(finding.code, Code::kStalledOutside);
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
  EXPECT_EQ(finding.seq, 2U);
  for (const auto& elsewhere : {std::vector<std::string>{"at::native::sum"}, {}}) {
    const Verdict verdict = checkers::Deadlock().check(waiting_in(elsewhere));
    EXPECT_EQ(verdict.outcome, Outcome::kUndecided) << "it may be done";
  }
}

TEST(Stall, WhoMayWaitForItsGpuIsNotBusyWithItsOwn) {
  const auto late_in = [](const std::vector<std::string>& functions) {
    lockstep::Run run = late({Rank{0}}, [](StateSample& sample, ThreadState& thread) {
      thread.state = 'R';
      thread.cpu_ns = sample.at_ns;
    });
    works_on_gpu(run, Rank{0}, functions);
    return said_of(run).culprits;
  };
  EXPECT_EQ(late_in({"at::native::sum"}), RankSet{Rank{0}});
  EXPECT_EQ(late_in({"cudaDeviceSynchronize"}), RankSet{});
  EXPECT_EQ(late_in({}), RankSet{}) << "that is not seen";
}

TEST(Stall, OneOfThreeIsNamedOnlyWhereItIsBusyWithItsOwn) {
  const Finding own = said_of(late({Rank{0}}, waits_for_own_threads));
  EXPECT_EQ(own.code, Code::kAbsentRank);
  EXPECT_EQ(own.culprits, RankSet{Rank{0}});
  EXPECT_EQ(own.cause, "rank 0 is busy with something of its own");
  EXPECT_EQ(
      own.evidence.front().text.rfind("rank 0: waits for a lock, a queue or a thread of its", 0),
      0U);
  EXPECT_EQ(own.confidence, Confidence::kLikely);
  const Finding computing = said_of(late({Rank{0}}, [](StateSample& sample, ThreadState& thread) {
    thread.state = 'R';
    thread.cpu_ns = sample.at_ns;
  }));
  EXPECT_EQ(computing.culprits, RankSet{Rank{0}});
  const Finding asking = said_of(late({Rank{0}}, [](StateSample& sample, ThreadState& thread) {
    thread.state = 'R';
    thread.cpu_ns = sample.at_ns;
    thread.context_switches = sample.at_ns / kMs;
  }));
  EXPECT_TRUE(asking.culprits.empty()) << "of a process that answers at once";
  for (const char* const wchan : {"futex_do_wait", "sk_wait_data", "do_sigtimedwait", ""}) {
    const Finding unknown =
        said_of(late({Rank{0}}, [&](StateSample&, ThreadState& thread) { thread.wchan = wchan; }));
    EXPECT_EQ(unknown.code, Code::kAbsentRank) << wchan;
    EXPECT_TRUE(unknown.culprits.empty()) << "another rank may have to end it: " << wchan;
    EXPECT_EQ(unknown.cause, "");
  }
  for (const char* const wchan : {"do_epoll_wait", "ep_poll", "futex_do_wait"}) {
    const Finding helped = said_of(late({Rank{0}}, [&](StateSample& sample, ThreadState& thread) {
      waits_for_own_threads(sample, thread);
      sample.threads.push_back(
          {.tid = 77, .state = 'S', .wchan = wchan, .context_switches = 1, .cpu_ns = 0});
    }));
    EXPECT_EQ(helped.culprits, RankSet{Rank{0}}) << wchan;
  }
  const Finding for_a_peer = said_of(late({Rank{0}}, [](StateSample& sample, ThreadState& thread) {
    waits_for_own_threads(sample, thread);
    sample.threads.push_back(
        {.tid = 77, .state = 'S', .wchan = "sk_wait_data", .context_switches = 1, .cpu_ns = 0});
  }));
  EXPECT_TRUE(for_a_peer.culprits.empty()) << "one of its threads waits for somebody";
  EXPECT_TRUE(said_of(late({Rank{0}, Rank{1}}, waits_for_own_threads)).culprits.empty())
      << "that one waits for two says nothing of it";
}

TEST(Stall, WhoSleepsAgainAndAgainAsksForSomethingAndIsNotNamed) {
  std::uint64_t switches = 5;
  const auto asleep = [&](std::uint64_t more) {
    return said_of(late({Rank{0}}, [&](StateSample&, ThreadState& thread) {
      thread.wchan = "hrtimer_nanosleep";
      thread.context_switches = switches += more;
    }));
  };
  EXPECT_EQ(asleep(0).culprits, RankSet{Rank{0}});
  EXPECT_TRUE(asleep(1).culprits.empty());
}

TEST(Stall, WhoWaitsForAMessageIsNotNamed) {
  lockstep::Run run = late({Rank{0}}, waits_for_own_threads);
  EXPECT_EQ(said_of(run).culprits, RankSet{Rank{0}});
  run.stacks.push_back(stack_of(run, Rank{0}, {"gloo::transport::tcp::UnboundBuffer::waitSend"}));
  EXPECT_TRUE(said_of(run).culprits.empty());
}

TEST(Stall, OfSeveralAbsentRanksTheOneThatHoldsTheOthersIsNamed) {
  const Row before = times(2, {all_reduce("dp", 8).at("t.py", 5)});
  lockstep::Run run =
      make_run({before + Row{all_reduce("dp", 8).pending().at("t.py", 5)}, before, before});
  hang(run);
  interrupt(run);
  for (StateSample& sample : run.states) {
    if (sample.rank == Rank{1})
      thread_of(sample, 1001).wchan = "hrtimer_nanosleep";
    if (sample.rank == Rank{2}) {
      thread_of(sample, 1002).wchan = "pipe_read";
      sample.held_by = {Rank{1}};
    }
  }
  const Finding finding = said_of(run);
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
  EXPECT_EQ(finding.headline,
            "rank 1 sleeps, and ranks 1,2 had not entered all_reduce dp#2 when the run was ended; "
            "rank 0 waited");
}

TEST(Stall, WhoIsInAnotherCallIsSaidToBeThere) {
  const Row before = times(2, {all_reduce("dp", 8), barrier("tp")});
  lockstep::Run run = make_run(
      {before + Row{all_reduce("dp", 8).pending()}, before + Row{barrier("tp").pending()}});
  hang(run);
  interrupt(run);
  for (StateSample& sample : run.states)
    thread_of(sample, sample.pid).cpu_ns += sample.at_ns;  // It may still do something.
  EXPECT_EQ(said_of(run).evidence.front().text, "rank 1: is in barrier tp#2");
}

TEST(Stall, WhoIsStoppedInsideTheCallIsNamed) {
  const auto inside = [](std::size_t stopped) {
    const Row before = times(2, {all_reduce("dp", 8).at("t.py", 5)});
    const Row last{all_reduce("dp", 8).pending().at("t.py", 5)};
    lockstep::Run run = make_run({before + last, before + last});
    hang(run);
    interrupt(run);
    for (StateSample& sample : run.states) {
      if (sample.rank && static_cast<std::size_t>(sample.rank->value) >= 2 - stopped)
        thread_of(sample, sample.pid).state = 'T';
    }
    return said_of(run);
  };
  const Finding one = inside(1);
  EXPECT_EQ(one.code, Code::kStalledOutside);
  EXPECT_EQ(one.culprits, RankSet{Rank{1}});
  EXPECT_EQ(one.affected, RankSet{Rank{0}});
  EXPECT_EQ(one.headline, "rank 1 is stopped by a signal inside all_reduce dp#2; rank 0 waited");
  EXPECT_EQ(inside(2).code, Code::kEveryoneInside) << "somebody stopped the whole job";
  EXPECT_EQ(inside(0).culprits, RankSet{});
}

/// Both are inside, and this often rank 0 has sent the same again to node2.
lockstep::Run unacknowledged(std::uint64_t tries, bool stopped) {
  const Row before = times(2, {all_reduce("dp", 8).at("t.py", 5)});
  const Row last{all_reduce("dp", 8).pending().at("t.py", 5)};
  lockstep::Run run = make_run({before + last, before + last});
  hang(run);
  interrupt(run);
  process_of(run, Rank{0}).host = "node1";
  run.unacknowledged.push_back({.at_ns = stall_ns(run),
                                .rank = Rank{0},
                                .pid = 1000,
                                .address = "10.9.0.2:4711",
                                .host = "node2",
                                .ranks = {Rank{1}},
                                .bytes = 512,
                                .tries = tries});
  for (StateSample& sample : run.states) {
    if (stopped && sample.rank == Rank{1})
      thread_of(sample, sample.pid).state = 'T';
  }
  return run;
}

TEST(Stall, ALinkOverWhichNothingGetsIsNamedAndNoRank) {
  const Finding finding = said_of(unacknowledged(5, false));
  EXPECT_EQ(finding.code, Code::kEveryoneInside);
  EXPECT_EQ(finding.headline,
            "all ranks of dp were inside all_reduce dp#2, and nothing gets from node1 to node2");
  EXPECT_EQ(finding.culprits, RankSet{});
  EXPECT_THAT(finding.cause, HasSubstr("no rank is at fault"));
  EXPECT_EQ(finding.evidence.front().text,
            "512 bytes that rank 0 has sent to 10.9.0.2:4711 are not acknowledged, after 5 tries");
  EXPECT_THAT(said_of(unacknowledged(2, false)).headline, HasSubstr("it did not finish"))
      << "a packet is lost now and then";
  EXPECT_EQ(said_of(unacknowledged(5, true)).culprits, RankSet{Rank{1}})
      << "who is stopped is known";
}

TEST(Stall, ARankThatWaitsForItsDataLoaderSaysSoAtTheUsersLine) {
  lockstep::Run run = stalled([](ThreadState& thread) { thread.wchan = "do_sys_poll"; });
  StackSample stack = stack_of(run, Rank{1}, {"poll"});
  stack.frames.push_back({"", 0, "/usr/lib/python3.11/selectors.py", 415, "select", {}});
  stack.frames.push_back(
      {"", 0, "/py/site-packages/torch/utils/data/dataloader.py", 1131, "_try_get_data", {}});
  stack.frames.push_back({"", 0, "t.py", 48, "main", {}});
  run.stacks.push_back(stack);
  const Finding finding = said_of(run);
  EXPECT_EQ(finding.headline.rfind("rank 1 waits for a data loader worker, and", 0), 0U);
  EXPECT_EQ(finding.sites.front().role, "culprit");
  EXPECT_EQ(finding.sites.front().line, 48);
}

TEST(Stall, AWorkerOfAPoolThatHasNoTaskSaysSoAndWhatItDidLast) {
  lockstep::Run run = stalled([](ThreadState& thread) { thread.wchan = "futex_do_wait"; });
  StackSample stack = stack_of(run, Rank{1}, {"sem_wait"});
  stack.frames.push_back({"", 0, "/py/multiprocessing/queues.py", 103, "Queue.get", {}});
  stack.frames.push_back({"", 0, "/py/concurrent/futures/process.py", 249, "_process_worker", {}});
  run.stacks.push_back(stack);
  const Finding finding = said_of(run);
  EXPECT_EQ(finding.headline.rfind("rank 1 waits for a task of its pool, and", 0), 0U);
  EXPECT_EQ(finding.culprits, RankSet{}) << "perhaps it was given none";
  EXPECT_THAT(texts_of(finding.evidence),
              Contains(HasSubstr("rank 1: its last call was all_reduce dp#1")));
  run.stacks.back().frames.insert(run.stacks.back().frames.begin() + 1,
                                  {"t.py", 0, "t.py", 12, "task", {}});
  EXPECT_THAT(said_of(run).headline, ::testing::Not(HasSubstr("pool")));
}

TEST(Stall, TheBackwardOfDdpIsAWaitToo) {
  lockstep::Run run = stalled([](ThreadState& thread) { thread.state = 'T'; },
                              all_reduce("dp", 8).async().pending());
  EXPECT_EQ(said_of(run).code, Code::kStalledOutside);
  run.stacks.clear();
  EXPECT_TRUE(checkers::Deadlock().check(run).findings.empty()) << "nobody is seen to wait for it";
}

TEST(Stall, WithoutANameNobodyIsBlamedOnTwoRanks) {
  const Finding somewhere = said_of(stalled([](ThreadState&) {}));  // In some futex.
  EXPECT_EQ(somewhere.code, Code::kAbsentRank);
  EXPECT_TRUE(somewhere.culprits.empty());
  const Finding running = said_of(stalled([](ThreadState& thread) { thread.state = 'R'; }));
  EXPECT_EQ(running.code, Code::kAbsentRank);
  EXPECT_TRUE(running.culprits.empty());
}

TEST(Stall, AShortSleepIsNone) {
  std::uint64_t switches = 0;
  const Finding polling = said_of(stalled([&](ThreadState& thread) {
    thread.wchan = "hrtimer_nanosleep";
    thread.context_switches = ++switches;
  }));
  EXPECT_EQ(polling.code, Code::kAbsentRank);
  EXPECT_TRUE(polling.culprits.empty());
}

TEST(Stall, WhoWaitsForOthersInTheStoreIsNotStalledOnItsOwn) {
  lockstep::Run run = stalled([](ThreadState& thread) { thread.wchan = "do_sys_poll"; });
  run.stacks.push_back(stack_of(run, Rank{1}, {"poll", "c10d::TCPStore::doWait"}));
  const Finding said = said_of(run);
  EXPECT_EQ(said.code, Code::kAbsentRank);
  EXPECT_TRUE(said.culprits.empty());
  EXPECT_EQ(said.evidence.front().text, "rank 1: waits for the store at t.py:5");
}

TEST(Stall, WhoEndsAJobWithinSecondsMayHaveEndedASlowOne) {
  const auto sleeps = [](ThreadState& thread) { thread.wchan = "hrtimer_nanosleep"; };
  const Verdict verdict = checkers::Deadlock().check(stalled(sleeps, std::chrono::seconds(5)));
  EXPECT_TRUE(verdict.findings.empty());
  EXPECT_EQ(verdict.reason,
            "not proven: rank 1 sleeps, and had not entered all_reduce dp#2 when the run was "
            "ended; rank 0 waited");
}

TEST(Stall, WhoHasLostPatienceBeforeTheUsualTimeMayBeWrong) {
  lockstep::Run run = stalled([](ThreadState& thread) { thread.wchan = "hrtimer_nanosleep"; });
  EXPECT_EQ(said_of(run).code, Code::kStalledOutside);
  for (Process& process : run.processes)  // They have waited as long for a call that came.
    process.collectives.front().issued_ns -= 15'000 * kMs;
  EXPECT_TRUE(checkers::Deadlock().check(run).findings.empty());
  run.acted.back().action = "deadline";
  EXPECT_EQ(said_of(run).code, Code::kStalledOutside) << "asked for";
}

TEST(Stall, WhatIsNotKnownConvictsNobody) {
  lockstep::Run run = stalled([](ThreadState& thread) { thread.state = 'T'; });
  process_of(run, Rank{1}).groups[0].seen_from_creation = false;
  EXPECT_TRUE(checkers::Deadlock().check(run).findings.empty());
}

}  // namespace
}  // namespace lockstep::testing
