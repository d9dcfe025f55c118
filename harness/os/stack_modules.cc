#include "harness/os/stack_modules.h"

#include <fmt/format.h>
#include <sys/uio.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

namespace lockstep::os {
namespace {

constexpr std::size_t kStackBytesMax = std::size_t{1} << 20;
// Who polls runs now and then.
constexpr int kLooksMax = 5;
constexpr std::chrono::milliseconds kBetweenLooks{2};

struct Mapping {
  std::uint64_t begin{}, end{};
  bool executable{};
  std::string path{};
  [[nodiscard]] bool holds(std::uint64_t address) const {
    return begin <= address && address < end;
  }
};

std::vector<Mapping> read_mappings(std::int32_t pid) {
  std::vector<Mapping> mappings;
  std::ifstream file(fmt::format("/proc/{}/maps", pid));
  for (std::string line; std::getline(file, line);) {
    char* rest = nullptr;
    Mapping& mapping = mappings.emplace_back();
    mapping.begin = std::strtoull(line.c_str(), &rest, 16);
    mapping.end = std::strtoull(rest + 1, &rest, 16);
    mapping.executable = std::string_view(rest).size() > 3 && rest[3] == 'x';
    if (const std::size_t path = line.find('/'); path != std::string::npos)
      mapping.path = line.substr(path);
  }
  return mappings;
}

const Mapping* mapping_of(const std::vector<Mapping>& mappings, std::uint64_t address) {
  const auto after = std::upper_bound(
      mappings.begin(), mappings.end(), address,
      [](std::uint64_t value, const Mapping& mapping) { return value < mapping.begin; });
  return after != mappings.begin() && std::prev(after)->holds(address) ? &*std::prev(after)
                                                                       : nullptr;
}

// The line of /proc/PID/task/TID/syscall of a thread that sleeps ends with its stack pointer and
// program counter.
std::optional<std::uint64_t> stack_pointer(std::int32_t pid, std::int32_t tid) {
  std::ifstream file(fmt::format("/proc/{}/task/{}/syscall", pid, tid));
  std::string text;
  std::getline(file, text);
  const std::size_t pc = text.rfind(" 0x");
  const std::size_t sp = pc == std::string::npos || pc == 0 ? pc : text.rfind(" 0x", pc - 1);
  if (sp == std::string::npos)
    return std::nullopt;
  return std::strtoull(text.c_str() + sp + 1, nullptr, 16);
}

}  // namespace

std::optional<std::vector<std::string>> modules_on_stack(std::int32_t pid, std::int32_t tid) {
  const std::vector<Mapping> mappings = read_mappings(pid);
  std::optional<std::uint64_t> top = stack_pointer(pid, tid);
  for (int again = 0; !top && again < kLooksMax; ++again) {
    std::this_thread::sleep_for(kBetweenLooks);
    top = stack_pointer(pid, tid);
  }
  const Mapping* stack = top ? mapping_of(mappings, *top) : nullptr;
  if (stack == nullptr || stack->end - *top > kStackBytesMax)
    return std::nullopt;
  std::vector<std::uint64_t> words((stack->end - *top) / sizeof(std::uint64_t));
  const std::size_t size = words.size() * sizeof(std::uint64_t);
  const iovec local{.iov_base = words.data(), .iov_len = size};
  const iovec remote{.iov_base = reinterpret_cast<void*>(*top), .iov_len = size};
  if (::process_vm_readv(pid, &local, 1, &remote, 1, 0) != static_cast<ssize_t>(size))
    return std::nullopt;
  std::vector<std::string> modules;
  for (const std::uint64_t word : words) {
    const Mapping* mapping = mapping_of(mappings, word);
    if (mapping != nullptr && mapping->executable && !mapping->path.empty() &&
        std::find(modules.begin(), modules.end(), mapping->path) == modules.end())
      modules.push_back(mapping->path);
  }
  return modules;
}

}  // namespace lockstep::os
