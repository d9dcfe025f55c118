// Ranks with the tap in them, and what they wrote.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "harness/history/reader.h"
#include "harness/tap/tap.h"
#include "tests/torch/ranks.h"

namespace lockstep::test {

inline void begin_tap(const RankContext& context, bool sites = true) {
  const std::filesystem::path directory =
      context.directory / ("history" + std::to_string(context.rank));
  std::filesystem::create_directory(directory);
  require(tap::start({.directory = directory.c_str(),
                      .rank = context.rank,
                      .world_size = context.world,
                      .sites = sites}),
          "a history file in " + directory.string());
}

inline Process read_rank(const std::filesystem::path& directory, int rank) {
  for (const auto& entry :
       std::filesystem::directory_iterator(directory / ("history" + std::to_string(rank)))) {
    auto source = history::FileSource::open(entry.path().string());
    if (!source)
      continue;
    history::ProcessReader reader(std::move(*source), entry.path().filename().string());
    const auto read = reader.poll(/*final=*/true);
    EXPECT_TRUE(read) << read.error().what;
    return reader.process();
  }
  ADD_FAILURE() << "rank " << rank << " wrote no history";
  return {};
}

inline std::vector<Process> seen_on_two(const std::function<void(RankContext&)>& body) {
  std::vector<Process> seen;
  run_ranks(
      2,
      [&](RankContext& context) -> std::string {
        begin_tap(context);
        body(context);
        tap::stop();
        return "";
      },
      [&](const std::filesystem::path& directory) {
        seen = {read_rank(directory, 0), read_rank(directory, 1)};
      });
  return seen;
}

}  // namespace lockstep::test
