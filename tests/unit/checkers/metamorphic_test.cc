// Goal: deleting any suffix, record or file never turns pass into fail and never moves the blame.
// Method: every kind of typed run, every single deletion, every suffix, and random subsets.
#include "tests/support/metamorphic.h"

#include <gtest/gtest.h>

#include <functional>

#include "checkers/judge.h"
#include "tests/support/uneven_run.h"

namespace lockstep::testing {
namespace {

struct Shape {
  const char* name{};
  Code code{};  ///< Of the finding; empty for a healthy run.
  std::function<lockstep::Run()> make{};
};

const Row kStep{broadcast("dp", 4).at("t.cc", 1), all_reduce("dp", 8).at("t.cc", 2),
                all_reduce("tp", 6).at("t.cc", 3)};

lockstep::Run with_requests(lockstep::Run run, const RankSet& idle) {
  const std::uint64_t end = stall_ns(run);
  for (const Rank rank : RankSet::all(run.plan.world_size)) {
    ask(run, rank, "hello", kStart / 3, kStart / 2);
    ask(run, rank, "step", kStart - kMs,
        idle.contains(rank) ? std::optional(end - 10 * kMs) : std::nullopt);
  }
  return run;
}

lockstep::Run healthy() {
  lockstep::Run run = make_run(std::vector<Row>(3, times(4, kStep)));
  converse(run);
  run.plan.contract["buffers"] = "rank0";
  run.plan.expected_marks = {"happened"};
  run.marks.push_back({0, kStart, "happened"});
  for (const Rank rank : RankSet::all(3)) {
    observe(run, rank, "param/w", 0, "initial", {1});
    observe(run, rank, "buffer/m", 0, "after_backward", {1.0 + rank.value});
    observe(run, rank, "buffer/m", 1, "forward_entry/0", {1});
    observe(run, rank, "grad/w", 1, "after_backward", {2});
  }
  reference(run, "grad/w", 1, {2});
  reference(run, "grad/w", 1, {6}, "sum");
  return run;
}

lockstep::Run stalled_and_resolved() {  // Samples of a stall that ended well.
  lockstep::Run run = healthy();
  lockstep::Run hung = run;
  hang(hung, false);
  for (StateSample sample : hung.states) {
    sample.at_ns = kStart + 30 * kMs + (sample.at_ns - stall_ns(run));
    run.states.push_back(sample);
  }
  return run;
}

lockstep::Run two_mistakes() {  // Rank 1 first, in one group; rank 3 later, in another.
  const Row later = times(2, kStep);
  std::vector<Row> rows(5,
                        later + Row{all_reduce("dp", 8), all_reduce("tp", 6), all_reduce("dp", 8)});
  rows[1][6] = all_reduce("dp", 9);
  rows[3][7] = all_reduce("tp", 7);
  return make_run(rows);
}

lockstep::Run two_deaths() {
  lockstep::Run run = make_run(std::vector<Row>(4, times(3, kStep)));
  ends_with_signal(run, Rank{2}, 9, kStart + 50 * kMs);
  ends_with_signal(run, Rank{1}, 11, kStart + 60 * kMs);
  return run;
}

lockstep::Run wrong_values() {
  lockstep::Run run = healthy();
  run.observations.clear();
  for (std::int64_t step = 0; step < 3; ++step) {
    for (const Rank rank : RankSet::all(3)) {
      observe(run, rank, "param/w", step, "after_step", {step > 0 && rank == Rank{2} ? 5.0 : 1.0});
      observe(run, rank, "param/v", step, "after_step", {step > 1 && rank == Rank{1} ? 5.0 : 1.0});
      observe(run, rank, "grad/w", step, "after_backward",
              {step > 1 && rank == Rank{0} ? 5.0 : 1.0});
    }
    reference(run, "grad/w", step, {1});
    reference(run, "grad/w", step, {9}, "sum");
  }
  return run;
}

lockstep::Run overflowed() {
  Row right = times(3000, {all_reduce("dp", 8)});
  Row wrong = right;
  wrong[2500] = all_reduce("dp", 9);
  wrong[2600] = all_reduce("dp", 9);
  Row other = right;
  other[2700] = all_reduce("dp", 7);
  lockstep::Run run = make_run({right, wrong, other, right});
  for (Process& process : run.processes) {
    process.dropped = 2400;
    process.collectives.erase(process.collectives.begin(), process.collectives.begin() + 2400);
  }
  return run;
}

lockstep::Run out_of_a_loop(bool exits) {
  const Row round{broadcast("dp", 4).at("t.py", 1).in_loop(1),
                  all_reduce("dp", 8).at("t.py", 2).in_loop(1)};
  const Row next{broadcast("dp", 4).at("t.py", 1).in_loop(1).failed()};
  const Row rest = exits ? Row{} : Row{barrier("dp").at("t.py", 3).pending()};
  lockstep::Run run =
      make_run({times(3, round) + next, times(3, round) + rest, times(3, round) + next});
  if (!exits) {
    hang(run);
    return run;
  }
  ends_with_status(run, Rank{1}, 0, stall_ns(run));
  ends_with_status(run, Rank{0}, 1, stall_ns(run) + kMs);
  ends_with_status(run, Rank{2}, 1, stall_ns(run) + kMs);
  return run;
}

lockstep::Run left_out_a_gradient() {
  const Row two = times(2, {all_reduce("dp", 8)});
  const Row more{all_reduce("dp", 8).failed()};
  lockstep::Run run = make_run({two + more, two, two + more});
  run.raised.push_back({0,
                        stall_ns(run),
                        Rank{1},
                        1001,
                        "Expected to have finished reduction in the prior iteration",
                        {}});
  for (const Rank rank : RankSet::all(3))
    ends_with_status(run, rank, 1, stall_ns(run) + (rank == Rank{1} ? 1 : 5) * kMs);
  return run;
}

std::vector<Shape> shapes() {
  const Row two = times(2, kStep);
  const Call pending = all_reduce("dp", 8).at("t.cc", 2).pending();
  return {
      {"healthy", Code::kNone, healthy},
      {"stalled and resolved", Code::kNone, stalled_and_resolved},
      {"started again", Code::kNone,
       [] {
         lockstep::Run run = make_run(std::vector<Row>(2, times(4, kStep)));
         add_failed_attempt(run);
         return run;
       }},
      {"two mistakes", Code::kDifferentSize, two_mistakes},
      {"two deaths", Code::kRankDied, two_deaths},
      {"wrong values", Code::kParameterDiffers, wrong_values},
      {"overflowed", Code::kDifferentSize, overflowed},
      {"absent", Code::kAbsentRank,
       [=] {
         lockstep::Run run =
             with_requests(make_run({two + Row{pending}, two, two + Row{pending}}), {Rank{1}});
         hang(run);
         return run;
       }},
      {"dead", Code::kRankDied,
       [=] {
         lockstep::Run run =
             with_requests(make_run({two + Row{pending}, two, two + Row{pending}}), {});
         ends_with_signal(run, Rank{1}, 9, kStart + 70 * kMs);
         hang(run);
         return run;
       }},
      {"left early", Code::kLeftEarly,
       [=] {
         lockstep::Run run =
             with_requests(make_run({two + Row{pending}, two, two + Row{pending}}), {});
         ends_with_status(run, Rank{1}, 0, kStart + 70 * kMs);
         hang(run);
         return run;
       }},
      {"left out", Code::kMissingCall,
       [=] {
         const Call b0 = all_reduce("dp", 10).async().pending();
         const Call b1 = all_reduce("dp", 20).async().pending();
         const Call b2 = all_reduce("dp", 30).async().pending();
         lockstep::Run run = with_requests(
             make_run({two + Row{b0, b1, b2}, two + Row{b0, b2}, two + Row{b0, b1, b2}}), {});
         hang(run);
         return run;
       }},
      {"left out a gradient", Code::kMissingCall, left_out_a_gradient},
      {"left the loop and waits", Code::kUnevenBatches, [] { return out_of_a_loop(false); }},
      {"left the loop and exited", Code::kUnevenBatches, [] { return out_of_a_loop(true); }},
      {"ran out of batches", Code::kUnevenBatches,
       [] {
         return uneven_run({5, 3, 3});
       }},
      {"cycle", Code::kWaitCycle,
       [] {
         lockstep::Run run =
             make_run({{all_reduce("a", 8).pending()}, {all_reduce("b", 8).pending()}, {}});
         set_members(run, "a", {Rank{0}, Rank{1}});
         set_members(run, "b", {Rank{0}, Rank{1}});
         hang(run);
         return run;
       }},
      {"raised, then the others lost it", Code::kRankDied,
       [=] {
         lockstep::Run run = with_requests(make_run(std::vector<Row>(3, two)), {});
         for (Request& request : run.requests) {
           if (request.message != "step")
             continue;
           request.outcome = "failed";
           request.text = request.rank == Rank{1} ? "bad batch" : "Connection closed by peer";
           request.answered_ns = kStart + 70 * kMs;
         }
         return run;
       }},
  };
}

class MetamorphicLaw : public ::testing::TestWithParam<Shape> {};

TEST_P(MetamorphicLaw, Holds) {
  const lockstep::Run run = GetParam().make();
  const checkers::Judgement judgement = checkers::judge(run, checkers::all_checkers());
  if (GetParam().code == Code::kNone) {
    ASSERT_TRUE(judgement.findings.empty()) << judgement.findings.front().headline;
  } else {
    ASSERT_FALSE(judgement.findings.empty());
    ASSERT_EQ(judgement.findings.front().code, GetParam().code)
        << judgement.findings.front().headline;
  }
  for (const std::string& violation : law_violations(run))
    ADD_FAILURE() << violation;
}

INSTANTIATE_TEST_SUITE_P(TypedRuns, MetamorphicLaw, ::testing::ValuesIn(shapes()),
                         [](const ::testing::TestParamInfo<Shape>& shape) {
                           std::string name;
                           for (const char c : std::string(shape.param.name))
                             name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
                           return name;
                         });

// The law has teeth: a checker that blames whoever is left breaks it.
TEST(Metamorphic, ABlameThatMovesIsSeen) {
  lockstep::Run run = two_deaths();
  run.live = true;  // Claims that the journal is whole whatever is deleted.
  EXPECT_FALSE(law_violations(run).empty());
}

}  // namespace
}  // namespace lockstep::testing
