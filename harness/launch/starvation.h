// On a busy machine a process needs long for what it does at once elsewhere: what it wanted to do
// and could not is no fault of its own.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <map>
#include <vector>

#include "harness/os/proc.h"

namespace lockstep::launch {

/// How long main threads wanted a processor and had none, since they were first asked about.
class Starvation {
 public:
  std::chrono::nanoseconds longest(const std::vector<os::ProcessStat>& processes) {
    std::chrono::nanoseconds longest{};
    for (const os::ProcessStat& process : processes) {
      std::ifstream file(fmt::format("/proc/{}/schedstat", process.id.pid));
      std::int64_t ran = 0, waited = 0;
      if (file >> ran >> waited) {
        const auto first = first_.try_emplace(process.id, waited).first->second;
        longest = std::max(longest, std::chrono::nanoseconds(waited - first));
      }
    }
    return longest;
  }

 private:
  std::map<os::ProcessId, std::int64_t> first_{};
};

}  // namespace lockstep::launch
