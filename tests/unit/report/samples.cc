#include "tests/unit/report/samples.h"

#include <limits>
#include <utility>

namespace lockstep::testing {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

RankSet ranks(std::initializer_list<std::int32_t> values) {
  RankSet set;
  for (const std::int32_t value : values)
    set.insert(Rank{value});
  return set;
}

Report run_of(std::int32_t world_size) {
  Report report;
  report.run = "81c0";
  report.command = {"python", "train.py"};
  report.world_size = world_size;
  report.versions = {{"lockstep", "0.1.0"}, {"torch", "2.15.0"}, {"backend", "gloo"}};
  for (std::int32_t r = 0; r < world_size; ++r)
    report.ranks.push_back({.rank = Rank{r}, .pid = 4711 + r, .host = "a", .exited = 0});
  return report;
}

Verdict check(std::string name, Outcome outcome, std::string reason,
              std::map<std::string, std::uint64_t> examined) {
  return {.name = std::move(name),
          .outcome = outcome,
          .reason = std::move(reason),
          .examined = std::move(examined)};
}

Finding absent_rank() {
  Finding finding;
  finding.code = Code::kAbsentRank;
  finding.headline = "rank 3 has not entered all_reduce dp#1291; 7 ranks wait in it";
  finding.culprits = ranks({3});
  finding.affected = ranks({0, 1, 2, 4, 5, 6, 7});
  finding.group = "dp";
  finding.op = "all_reduce";
  finding.seq = 1291;
  finding.step = 117;
  for (const std::int32_t r : {0, 1, 2, 4, 5, 6, 7})
    finding.sites.push_back({Rank{r}, "peer", "train.cc", 181, "train_step"});
  finding.sites.push_back({Rank{3}, "culprit", "train.cc", 167, "train_step"});
  finding.tell(EvidenceKind::kGroup, RankSet::all(8), "group dp, 8 ranks");
  finding
      .tell(EvidenceKind::kWait, finding.affected,
            "rank 0-2,4-7   in     all_reduce dp#1291   33554432 x bfloat16   for 0.7 s")
      .about(CallRef{.group = "dp", .seq = 1291})
      .site = SiteRef{Rank{0}, "peer", "train.cc", 181, "train_step"};
  finding
      .tell(EvidenceKind::kCall, finding.culprits,
            "rank 3         after  all_reduce dp#1290   33554432 x bfloat16   for 0.9 s")
      .about(CallRef{.group = "dp", .seq = 1290});
  finding.cause =
      "rank 3 left the plan that its unmutated twin follows: it left out dp#1291 and went on to "
      "the end of the step, "
      "where it waits for rank 0";
  finding.confidence = Confidence::kCertain;
  finding.consequences = 12;
  finding.ruled_out = {"a dead rank: 8 of 8 are alive",
                       "different collectives: same op, size and dtype on the 7 ranks inside",
                       "a slow link: no rank is past dp#1291"};
  finding.unseen = {"stacks: reading them from outside is not permitted here"};
  finding.help =
      "look at what lets rank 3 pass train.cc:167 without the call that the others make at "
      "train.cc:181";
  return finding;
}

Finding wrong_gradient() {
  Finding finding;
  finding.code = Code::kUniformFactor;
  finding.also = {Code::kGradientWrong};
  finding.headline =
      "every gradient is 3 times the reference: a sum over 3 ranks where a mean is declared";
  finding.affected = ranks({0, 1, 2});
  finding.step = 0;
  finding.names = {"conv1.weight", "conv1.bias", "bn1.weight", "bn1.bias",   "conv2.weight",
                   "conv2.bias",   "fc1.weight", "fc1.bias",   "fc2.weight", "fc2.bias"};
  finding.tell(EvidenceKind::kValue, {Rank{0}},
               "fc1.weight[7]   rank 0  0.75   reference  0.25   ratio 3");
  finding.tell(EvidenceKind::kValue, finding.affected,
               "10 of 10 parameters have the ratio 3, the largest deviation from it is 2.2e-16");
  finding.cause = "the result of all_reduce with sum is not divided by the world size";
  finding.confidence = Confidence::kLikely;
  finding.help = "divide by the world size, or declare that gradients are summed";
  return finding;
}

CaseReport suite_case(std::string scenario, std::int32_t world_size, std::string rest,
                      Outcome outcome) {
  CaseReport result;
  result.id = scenario + "/ddp/w" + std::to_string(world_size) + "/float64" + rest;
  result.scenario = std::move(scenario);
  result.implementation = "ddp";
  result.dtype = "float64";
  result.ranks = world_size;
  result.seed = 1;
  result.outcome = outcome;
  result.wall_s = 0.4125;
  return result;
}

}  // namespace

Report healthy_run() {
  Report report = run_of(8);
  report.outcome = Outcome::kPass;
  report.wall_s = 22.604;
  report.program_exit = 0;
  report.checks = {
      check("process-end", Outcome::kPass, "", {{"ranks", 8}}),
      check("collective-order", Outcome::kPass, "", {{"collectives", 3200}, {"groups", 3}}),
      check("buffer-equality", Outcome::kPass, "", {{"tensors", 12}, {"steps", 50}}),
      check("numeric-reference", Outcome::kSkipped, "needs --reference DIR", {})};
  return report;
}

Report hang() {
  Report report = run_of(8);
  report.outcome = Outcome::kFail;
  report.exit_status = 1;
  report.program_exit = 143;
  report.wall_s = 99.8;
  for (RankStatus& status : report.ranks) {
    status.exited.reset();
    status.signaled = 15;
  }
  report.findings = {absent_rank()};
  Verdict deadlock = check("deadlock", Outcome::kFail, "", {{"collectives", 10328}, {"groups", 2}});
  deadlock.findings = report.findings;
  report.checks = {check("process-end", Outcome::kPass, "", {{"ranks", 8}}), std::move(deadlock),
                   check("replica-equality", Outcome::kUndecided, "the run did not finish", {})};
  return report;
}

Report mismatch() {
  Report report = run_of(4);
  report.outcome = Outcome::kFail;
  report.exit_status = 1;
  report.wall_s = 3.25;
  Finding finding;
  finding.code = Code::kDifferentOp;
  finding.also = {Code::kDifferentSize};
  finding.headline =
      "ranks disagree on collective world#2: 2 ranks call all_reduce, 2 ranks call broadcast, and "
      "every later "
      "collective of this group pairs up wrongly";
  finding.affected = RankSet::all(4);
  finding.group = "world";
  finding.seq = 2;
  for (const std::int32_t r : {0, 1, 2, 3})
    finding.sites.push_back({Rank{r}, "peer", r % 2 == 0 ? "trainer/step.py" : "trainer/eval.py",
                             r % 2 == 0 ? 41 : 97,
                             r % 2 == 0 ? "Trainer.reduce_loss" : "Evaluator.share_metrics"});
  finding.tell(EvidenceKind::kCall, ranks({0, 2}), "rank 0,2   all_reduce sum   8 x float32");
  finding.tell(EvidenceKind::kCall, ranks({1, 3}), "rank 1,3   broadcast from 0   4 x float32");
  finding.help = "make both branches issue the same collectives in the same order";
  Finding slow;
  slow.code = Code::kSlow;
  slow.severity = Severity::kNote;
  slow.headline = "rank 2 was the last into 118 of 120 collectives, by 0.4 s on average";
  Finding dropped;
  dropped.code = Code::kEventsDropped;
  dropped.severity = Severity::kWarning;
  dropped.headline = "rank 1 dropped 17 records: its history was full";
  report.findings = {slow, finding, dropped};
  report.checks = {check("collective-order", Outcome::kFail, "", {{"collectives", 12}})};
  return report;
}

Report killed() {
  Report report = run_of(8);
  report.outcome = Outcome::kFail;
  report.exit_status = 1;
  report.program_exit = 137;
  report.wall_s = 43.01;
  for (RankStatus& status : report.ranks)
    status.exited = 1;
  report.ranks[2].exited.reset();
  report.ranks[2].signaled = 9;
  report.ranks[5].exited.reset();
  Finding finding;
  finding.code = Code::kRankDied;
  finding.headline =
      "rank 2 was killed by SIGKILL at 41.2 s; 7 ranks then timed out waiting for it";
  finding.culprits = ranks({2});
  finding.affected = RankSet::all(8).minus(finding.culprits);
  finding.tell(EvidenceKind::kEnd, {}, "SIGKILL did not come from lockstep");
  finding.tell(EvidenceKind::kCall, finding.culprits,
               "last record of rank 2: all_reduce dp#88 issued at 41.1 s");
  finding.confidence = Confidence::kUnknown;
  finding.cause = "this sentence is not forced by the evidence and must not be shown";
  finding.consequences = 1;
  finding.unseen = {"who sent the signal: the kernel log is not readable here"};
  report.findings = {finding};
  return report;
}

Report interrupted() {
  Report report;
  report.run = "9a1b";
  report.command = {"lockstep", "suite"};
  report.versions = {{"lockstep", "0.1.0"}};
  report.outcome = Outcome::kUndecided;
  report.reason = "interrupted by SIGINT after 1 of 40 cases";
  report.exit_status = 130;
  report.wall_s = 2.5;
  report.cases = {suite_case("buffer-broadcast", 2, "/broadcast=on", Outcome::kPass)};
  return report;
}

Report healthy_suite() {
  Report report;
  report.run = "7f3a";
  report.command = {"lockstep", "suite"};
  report.versions = {{"lockstep", "0.1.0"}, {"torch", "2.15.0"}, {"backend", "gloo"}};
  report.outcome = Outcome::kPass;
  report.wall_s = 21.44;
  CaseReport numeric = suite_case("gradient-equivalence", 3, "", Outcome::kPass);
  numeric.measures = {{"grad/fc1.weight", 2.220446049250313e-16, 4.44e-15, "double", "", 2.1e6},
                      {"grad/fc2.weight", 1.1e-15, 4.44e-15, "double", "", 9.4e5},
                      {"loss", 0, 1e-15, "double", "", std::nullopt}};
  numeric.mutants = {
      {"sum_for_mean", "ddp", Code::kUniformFactor, {Code::kUniformFactor}, {}, {}, true},
      {"skip_bucket_then_collective",
       "ddp",
       Code::kMissingCall,
       {Code::kMissingCall},
       ranks({1}),
       ranks({1}),
       true},
      {"raises_in_backward",
       "ddp",
       Code::kRankDied,
       {Code::kRankDied},
       ranks({2}),
       ranks({2}),
       true}};
  CaseReport exact = suite_case("buffer-broadcast", 5, "/broadcast=on", Outcome::kPass);
  exact.measures = {{"buffer/bn.running_mean", 0, 0, "exact", "", std::nullopt}};
  exact.marks = {"buffers differed before the broadcast"};
  exact.mutants = {{"broadcast_from_rank_1",
                    "ddp",
                    Code::kBufferDiffers,
                    {Code::kBufferDiffers},
                    ranks({1}),
                    ranks({1}),
                    true}};
  CaseReport skipped = suite_case("buffer-broadcast", 2, "/broadcast=off", Outcome::kSkipped);
  skipped.reason = "not applicable: the implementation declares that it has no buffers of its own";
  skipped.wall_s = 0;
  report.cases = {numeric, suite_case("gradient-equivalence", 5, "/unused=on", Outcome::kPass),
                  exact, skipped};
  return report;
}

Report failing_suite() {
  Report report = healthy_suite();
  report.outcome = Outcome::kFail;
  report.exit_status = 1;
  report.wall_s = 121.3;
  CaseReport wrong = suite_case("gradient-equivalence", 3, "/accumulate=2", Outcome::kFail);
  wrong.findings = {wrong_gradient()};
  wrong.measures = {{"grad/fc1.weight", 0.5, 4.44e-15, "double", "", 1.13e14},
                    {"grad/fc2.weight", kNan, 4.44e-15, "double", "", kInf}};
  CaseReport stuck = suite_case("gradient-equivalence", 8, "", Outcome::kFail);
  Finding left_out;
  left_out.code = Code::kOutsideBuckets;
  left_out.headline = "fc2.bias is in no bucket: no collective carries its gradient";
  left_out.names = {"fc2.bias"};
  Finding other = left_out, third = left_out;
  other.headline = "fc1.bias is in no bucket: no collective carries its gradient";
  third.headline = "conv1.bias is in no bucket: no collective carries its gradient";
  stuck.findings = {absent_rank(), left_out, other, third};
  stuck.wall_s = 12.7;
  CaseReport missed = suite_case("buffer-broadcast", 3, "/broadcast=on", Outcome::kUndecided);
  missed.reason = "mutant no_buffer_broadcast not caught";
  missed.mutants = {
      {"no_buffer_broadcast",
       "ddp",
       Code::kBufferDiffers,
       {Code::kAbsentRank},
       ranks({1, 2}),
       ranks({0}),
       false},
      {"broadcast_from_rank_1", "ddp", Code::kBufferDiffers, {}, ranks({1}), {}, false},
      {"no_initial_broadcast", "ddp", Code::kInitialValue, {Code::kInitialValue}, {}, {}, true}};
  CaseReport optional = suite_case("buffer-broadcast", 3, "/broadcast=off", Outcome::kUndecided);
  optional.id = "buffer-broadcast/ddp/w3/float32/broadcast=off";
  optional.dtype = "float32";
  optional.reason = "power 4.2 of grad/conv.weight is below 10";
  optional.required = false;
  report.cases.insert(report.cases.begin() + 1, {wrong, stuck, missed, optional});
  return report;
}

Report hostile() {
  Report report = run_of(512);
  report.outcome = Outcome::kFail;
  report.exit_status = 1;
  report.wall_s = 1234.5678;
  report.command = {"sh", "-c", "printf '\xff'"};
  Finding finding;
  finding.code = Code::kRankDied;
  finding.headline =
      "rank 7 raised: \x1b[2J\x1b]0;owned\x07<b>&\"quoted\"</b> ]]> \xff\xfe \xc3\xa9t\xc3\xa9 "
      "\xef\xbf\xbf\r\ttail";
  for (std::int32_t r = 0; r < 512; r += 2)
    finding.affected.insert(Rank{r});
  finding.culprits = ranks({7});
  for (const std::string& line :
       {std::string("a line with a zero byte: ") + '\0' + ".",
        std::string("first\nsecond line of the same text"),
        "/a/path/that/has/no/space/" + std::string(120, 'x') + "/and/ends/here.py:12"})
    finding.tell(EvidenceKind::kException, finding.culprits, "{}", line)
        .about(CallRef{.group = "\xff", .seq = std::numeric_limits<std::uint64_t>::max()});
  for (std::int32_t r = 0; r < 24; ++r)
    finding.sites.push_back({Rank{r}, "peer", "f.py", r, "f"});
  for (int line = 0; line < 50; ++line)
    finding.unseen.push_back("thing " + std::to_string(line));
  finding.help =
      "ratio \xe2\x89\xa4 2 \xc3\x97 \xce\xbcs \xe2\x80\x94 \xe2\x80\x9cso\xe2\x80\x9d\xe2\x80\xa6";
  report.findings = {finding};
  return report;
}

std::vector<Sample> all_samples() {
  return {{"healthy_run", healthy_run(), ".lockstep/7f3a"},
          {"hang", hang(), ".lockstep/81c0"},
          {"mismatch", mismatch(), ".lockstep/81c0"},
          {"killed", killed(), ".lockstep/81c0"},
          {"interrupted", interrupted(), ".lockstep/9a1b"},
          {"healthy_suite", healthy_suite(), ".lockstep/7f3a"},
          {"failing_suite", failing_suite(), ".lockstep/7f3a"},
          {"hostile", hostile(), "/a dir/with 'quotes'"}};
}

}  // namespace lockstep::testing
