// How long judging a long history takes, and the memory of the process then: 64 ranks with 100,000
// collectives each, which all match, or the last of which one rank left out.
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include "checkers/judge.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

constexpr std::size_t kRanks = 64, kCalls = 100'000;

void judge_long_history(benchmark::State& state) {
  std::vector<Row> rows(kRanks, times(kCalls, {all_reduce("dp", 8)}));
  if (state.range(0) != 0)
    rows[3].pop_back();
  const Run run = make_run(rows);
  rows.clear();
  std::size_t findings = 0;
  for (auto _ : state)
    findings = checkers::judge(run, checkers::all_checkers()).findings.size();
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  state.counters["findings"] = static_cast<double>(findings);
  state.counters["MiB"] = static_cast<double>(usage.ru_maxrss) / 1024;
}
BENCHMARK(judge_long_history)->Arg(0)->Arg(1)->Unit(benchmark::kSecond)->Iterations(1);

}  // namespace
}  // namespace lockstep::testing

BENCHMARK_MAIN();
