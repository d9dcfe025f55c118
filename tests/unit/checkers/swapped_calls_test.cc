// Goal: calls in opposite order are told as swapped, and a rank is named only where its program is
// what swapped them.
#include <gtest/gtest.h>

#include "checkers/order/collective_order.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

Finding only_finding(const lockstep::Run& run) {
  const Verdict verdict = checkers::CollectiveOrder().check(run);
  EXPECT_EQ(verdict.outcome, Outcome::kFail) << verdict.reason;
  EXPECT_EQ(verdict.findings.size(), 1U);
  return verdict.findings.empty() ? Finding{} : verdict.findings.front();
}

TEST(SwappedCalls, OnlyIfTwoSitesCross) {
  const Call a = all_reduce("dp", 8).at("x.py", 1);
  const Call b = all_reduce("dp", 9).at("x.py", 2);
  EXPECT_EQ(only_finding(make_run({{a, b}, {b, a}})).code, Code::kSwapped);
  // From four different lines: what is swapped with what is not known.
  const Finding other = only_finding(make_run({{a, b}, {b.at("x.py", 3), a.at("x.py", 4)}}));
  EXPECT_EQ(other.code, Code::kDifferentSize);
}

TEST(SwappedCalls, EqualCallsInSilence) {
  const Call a = all_reduce("dp", 8).at("x.py", 1);
  const Call b = all_reduce("dp", 8).at("x.py", 2);
  const Finding three = only_finding(make_run({{a, b}, {b, a}, {a, b}}));
  EXPECT_EQ(three.code, Code::kSwapped);
  EXPECT_EQ(three.culprits, RankSet{Rank{1}});
  const Finding two = only_finding(make_run({{a, b, a, b}, {a, b, b, a}}));
  EXPECT_EQ(two.code, Code::kSwapped);
  EXPECT_TRUE(two.culprits.empty());
}

TEST(SwappedCalls, BetweenTwoThreadsTheOrderIsNobodysFault) {
  for (const std::uint64_t elements : {8, 9}) {
    const Call training = all_reduce("dp", 8).at("x.py", 1);
    const auto checkpoint = [&](std::uint32_t thread) {
      return all_reduce("dp", elements).at("x.py", 2).on_thread(thread);
    };
    const Row first{checkpoint(71), training}, last{training, checkpoint(72)};
    const Finding finding = only_finding(make_run({first, last, first}));
    EXPECT_EQ(finding.code, Code::kSwapped);
    EXPECT_TRUE(finding.culprits.empty());
    EXPECT_EQ(finding.affected, RankSet::all(3));
    EXPECT_EQ(finding.evidence.at(0).text,
              "two threads of ranks 0-2 issue on one group: their order is chance");
    EXPECT_NE(finding.help.find("new_group"), std::string::npos);
  }
}

/// Both threads of each rank were inside of a call at once, and what was recorded first is chance.
lockstep::Run at_once(bool last_one_ends) {
  const Call training = all_reduce("dp", 8).at("x.py", 1);
  const Call saving = all_gather("dp", 1, 2).at("x.py", 2);
  const Call both = last_one_ends ? training : training.pending();
  return make_run({{training, training.overlapped(), saving.on_thread(71).overlapped(), both},
                   {training, saving.on_thread(72).overlapped(), training.overlapped(), both}});
}

TEST(SwappedCalls, OfThreadsThatCallAtOnceItIsToldOnceACallDoesNotEnd) {
  lockstep::Run run = at_once(false);
  hang(run);
  const Finding finding = only_finding(run);
  EXPECT_EQ(finding.code, Code::kSwapped);
  EXPECT_TRUE(finding.culprits.empty());
  EXPECT_EQ(finding.affected, RankSet::all(2));
  EXPECT_NE(finding.headline.find("two threads of ranks 0,1"), std::string::npos);
  ASSERT_EQ(finding.sites.size(), 2U) << "both threads of one rank";
  EXPECT_EQ(finding.sites[0].rank, finding.sites[1].rank);
  EXPECT_NE(finding.sites[0].line, finding.sites[1].line);
}

TEST(SwappedCalls, OfThreadsThatCallAtOnceNothingIsKnownWhereAllEndedWell) {
  const Verdict verdict = checkers::CollectiveOrder().check(at_once(true));
  EXPECT_TRUE(verdict.findings.empty());
  EXPECT_EQ(verdict.outcome, Outcome::kUndecided);
}

/// What comes from this line was called by `function` of a library.
void call_from(lockstep::Run& run, std::int32_t line, const std::string& library,
               const std::string& function) {
  for (Process& process : run.processes) {
    for (CallSite& site : process.sites) {
      if (!site.frames.empty() && site.frames.front().line == line)
        site.frames.push_back({"", 0, "/usr/lib/python3.11/" + library, 1002, function, {}});
    }
  }
}

/// As Python's threading has started it.
void make_thread_of(lockstep::Run& run, std::int32_t line) {
  call_from(run, line, "threading.py", "_bootstrap");
}

/// Autograd has a thread for each GPU, and the main thread waits for it in backward().
TEST(SwappedCalls, WhatTheThreadOfAGpuIssuesIsInTheOrderOfTheMainThread) {
  const auto gradient = [](std::uint32_t thread) {
    return all_reduce("dp", 8).at("x.py", 2).on_thread(thread);
  };
  const Call loss = all_reduce("dp", 9).at("x.py", 1);
  const Row first{gradient(71), loss}, last{loss, gradient(72)};
  lockstep::Run run = make_run({first, last, first});
  EXPECT_TRUE(only_finding(run).culprits.empty()) << "nothing says that it is autograd's";
  call_from(run, 2, "site-packages/torch/autograd/graph.py", "_engine_run_backward");
  const Finding finding = only_finding(run);
  EXPECT_EQ(finding.code, Code::kSwapped);
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
  make_thread_of(run, 2);
  EXPECT_TRUE(only_finding(run).culprits.empty()) << "a thread of the program's is in backward()";
}

TEST(SwappedCalls, WhatAThreadPutsBetweenOthersIsNoRanksFault) {
  const Row step = times(4, {all_reduce("dp", 8).at("x.py", 1).async()});
  const Call checkpoint = barrier("dp").at("x.py", 2);
  for (const bool from_thread : {true, false}) {
    const Call from = from_thread ? checkpoint.on_thread(71) : checkpoint;
    lockstep::Run run =
        make_run({step + Row{from} + step, step + step + Row{from}, step + Row{from} + step});
    if (from_thread)
      make_thread_of(run, 2);
    const Finding finding = only_finding(run);
    EXPECT_EQ(finding.culprits, from_thread ? RankSet{} : RankSet{Rank{1}});
    EXPECT_EQ(finding.code, from_thread ? Code::kSwapped : Code::kMissingCall);
  }
}

TEST(SwappedCalls, WhatOneThreadIssuesIsInTheOrderOfTheProgram) {
  const Call step = all_reduce("dp", 8).at("x.py", 1), checkpoint = barrier("dp").at("x.py", 2);
  const Row others = Row{checkpoint.on_thread(71)} + times(4, {step.async()});
  const auto with = [&](const Call& own) {
    const Row twice{own, checkpoint.on_thread(71), own, own};
    lockstep::Run run = make_run({others, Row{checkpoint.on_thread(71)} + twice, others});
    make_thread_of(run, 2);
    make_thread_of(run, 3);
    return only_finding(run);
  };
  const Finding finding = with(step.at("x.py", 3).on_thread(71));
  EXPECT_EQ(finding.code, Code::kDifferentOp);
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
  EXPECT_TRUE(with(step).culprits.empty()) << "it has two";
}

TEST(CollectiveOrder, AnUnknownCallBeforeItSparesTheMinority) {
  lockstep::Run run = make_run({times(5, {all_reduce("dp", 8)}),
                                times(4, {all_reduce("dp", 8)}) + Row{all_reduce("dp", 9)},
                                times(5, {all_reduce("dp", 8)})});
  EXPECT_EQ(only_finding(run).culprits, RankSet{Rank{1}});
  run.processes[2].collectives.erase(run.processes[2].collectives.begin() + 2);
  EXPECT_TRUE(only_finding(run).culprits.empty());
}

TEST(CollectiveOrder, WhatIsUnknownOfAnotherGroupSparesTheMinority) {
  const Row before{all_reduce("tp", 8), all_reduce("dp", 8)};
  const lockstep::Run whole =
      make_run({before + Row{all_reduce("dp", 8)}, before + Row{all_reduce("dp", 9)},
                before + Row{all_reduce("dp", 8)}});
  EXPECT_EQ(only_finding(whole).culprits, RankSet{Rank{1}});
  for (const Rank rank : RankSet::all(3)) {
    lockstep::Run run = whole;
    process_of(run, rank).groups[0].seen_from_creation = false;
    EXPECT_TRUE(only_finding(run).culprits.empty()) << rank.value;
  }
}

}  // namespace
}  // namespace lockstep::testing
