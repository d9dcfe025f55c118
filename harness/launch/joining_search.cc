#include "harness/launch/joining_search.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <string>

#include "harness/launch/rank_environment.h"
#include "harness/os/python_frames.h"

namespace lockstep::launch {
namespace {

constexpr std::size_t kLooksMax = 256;  // Processes of a family: a millisecond each.

bool is_of_distributed(const os::PythonFrame& frame) {
  return frame.file.find("/torch/distributed/") != std::string::npos;
}

bool is_joining(const os::PythonThread& thread) {
  return std::any_of(thread.frames.begin(), thread.frames.end(), [](const os::PythonFrame& frame) {
    return frame.function == "init_process_group" && is_of_distributed(frame);
  });
}

/// As init_process_group was called, or as what it calls has read in the environment.
std::optional<Joining> joins(const os::ProcessStat& process) {
  const auto threads = os::read_python_threads(process.id.pid);
  if (!threads)
    return std::nullopt;
  for (const os::PythonThread& thread : *threads) {
    if (!is_joining(thread))
      continue;
    for (const os::PythonFrame& frame : thread.frames) {
      const std::map<std::string, std::int64_t> told(frame.integers.begin(), frame.integers.end());
      const auto rank = told.find("rank"), size = told.find("world_size");
      if (is_of_distributed(frame) && rank != told.end() && size != told.end() &&
          rank->second >= 0 && rank->second < size->second)
        return Joining{process.id, Rank{static_cast<std::int32_t>(rank->second)},
                       static_cast<std::int32_t>(size->second)};
    }
  }
  return std::nullopt;
}

bool has_loaded_torch(std::int32_t pid) {
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/libtorch_cpu.so") != std::string::npos)
      return true;
  }
  return false;
}

/// Of the children of one parent, the one that is to be the only rank that is missing. It may have
/// failed.
std::optional<Joining> the_missing_one(const std::vector<Joining>& there,
                                       const std::vector<os::ProcessStat>& siblings,
                                       const std::vector<os::ProcessStat>& failed) {
  const std::int32_t size = there.front().world_size;
  RankSet missing = RankSet::all(size);
  for (const Joining& one : there)
    missing.erase(one.rank);
  std::vector<const os::ProcessStat*> others;
  for (const os::ProcessStat& sibling : siblings) {
    const bool known = std::any_of(there.begin(), there.end(),
                                   [&](const Joining& one) { return one.id == sibling.id; });
    if (!known && !told_rank(sibling) && has_loaded_torch(sibling.id.pid))
      others.push_back(&sibling);
  }
  for (const os::ProcessStat& process : failed) {
    if (process.parent == siblings.front().parent)
      others.push_back(&process);
  }
  const bool one_world = std::all_of(there.begin(), there.end(),
                                     [&](const Joining& one) { return one.world_size == size; });
  if (!one_world || missing.size() != 1 || others.size() != 1)
    return std::nullopt;
  return Joining{others.front()->id, *missing.begin(), size};
}

}  // namespace

std::vector<Joining> who_joins(const std::vector<os::ProcessStat>& family,
                               const std::vector<os::ProcessStat>& failed) {
  std::map<std::int32_t, std::vector<os::ProcessStat>> children;
  for (const os::ProcessStat& process : family) {
    if (!process.zombie())
      children[process.parent].push_back(process);
  }
  std::vector<Joining> all;
  std::size_t looks = 0;
  for (const auto& [parent, siblings] : children) {
    std::vector<Joining> there;
    for (const os::ProcessStat& process : siblings) {
      if (++looks > kLooksMax)
        return all;
      if (const std::optional<Joining> one = joins(process))
        there.push_back(*one);
    }
    if (there.empty())
      continue;
    if (const std::optional<Joining> missing = the_missing_one(there, siblings, failed))
      there.push_back(*missing);
    all.insert(all.end(), there.begin(), there.end());
  }
  return all;
}

}  // namespace lockstep::launch
