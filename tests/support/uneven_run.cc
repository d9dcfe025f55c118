#include "tests/support/uneven_run.h"

#include <algorithm>

namespace lockstep::testing {

Run uneven_run(const std::vector<std::int64_t>& batches) {
  const Row batch{broadcast("dp", 4).at("t.cc", 1), all_reduce("dp", 8).at("t.cc", 2)};
  const std::int64_t least = *std::min_element(batches.begin(), batches.end());
  std::vector<Row> rows;
  for (const std::int64_t count : batches) {
    Row row = times(static_cast<std::size_t>(least), batch);
    if (count > least)
      row.push_back(broadcast("dp", 4).at("t.cc", 1).pending());
    rows.push_back(row);
  }
  Run run = make_run(rows);
  run.plan.scenario = "uneven-batches";
  run.plan.batches = batches;
  for (const Rank rank : RankSet::all(run.plan.world_size)) {
    const std::int64_t count = batches[static_cast<std::size_t>(rank.value)];
    const auto begin = [&](std::int64_t step) {  // Each call comes kEvery after the one before.
      return kStart + static_cast<std::uint64_t>(step) * batch.size() * kEvery - 2 * kMs;
    };
    for (std::int64_t step = 0; step < least; ++step)
      ask(run, rank, "step", begin(step), begin(step + 1) - kMs);
    if (count > least)
      ask(run, rank, "step", begin(least), std::nullopt);
    else
      ask(run, rank, "exhausted", begin(least), begin(least) + kMs);
  }
  hang(run);
  return run;
}

}  // namespace lockstep::testing
