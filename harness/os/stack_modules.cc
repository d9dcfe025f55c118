#include "harness/os/stack_modules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "harness/os/process_memory.h"

namespace lockstep::os {
namespace {

constexpr std::size_t kStackWordsMax = std::size_t{1} << 17;  // 1 MiB
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

/// Of a stack, from its pointer on to its end, which for a thread that is not the first is where
/// the C library keeps what it knows of it: that begins with its own address, twice (the ABI's
/// thread pointer). The mapping may go on, behind a guard that is none of its own (glibc 2.42),
/// with the stack of another one.
std::optional<std::vector<std::uint64_t>> words_of_stack(std::int32_t pid, const Mapping& mapping,
                                                         std::uint64_t begin) {
  constexpr std::uint64_t kPageBytes = 4096;
  std::vector<std::uint64_t> words;
  std::size_t looked_at = 0;
  for (std::uint64_t at = begin; at < mapping.end && words.size() < kStackWordsMax;) {
    const std::uint64_t end = std::min(mapping.end, (at / kPageBytes + 1) * kPageBytes);
    const std::size_t before = words.size(), more = (end - at) / sizeof(std::uint64_t);
    words.resize(before + more);
    if (!read_memory(pid, at, words.data() + before, more * sizeof(std::uint64_t)))
      return std::nullopt;
    at = end;
    for (; looked_at + 2 < words.size(); ++looked_at) {
      const std::uint64_t own = begin + looked_at * sizeof(std::uint64_t);
      if (words[looked_at] != own || words[looked_at + 2] != own)
        continue;
      words.resize(looked_at);
      return words;
    }
    if (at == mapping.end)
      return words;
  }
  return std::nullopt;
}

/// Whether a call ends there, as before each return address: opcode E8 with four bytes, or FF /2
/// with what it needs. Numbers may look like code: of a program that is mapped low, the size of a
/// stack does. Unreadable code is taken for a call's.
bool is_behind_call(std::int32_t pid, std::uint64_t address) {
  std::array<std::uint8_t, 7> before{};
  if (!read_memory(pid, address - before.size(), before.data(), before.size()))
    return true;
  if (before[2] == 0xe8)
    return true;
  for (const std::size_t bytes : {2, 3, 4, 6, 7}) {
    const std::size_t at = before.size() - bytes;
    if (before[at] == 0xff && (before[at + 1] >> 3 & 7) == 2)
      return true;
  }
  return false;
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
  if (stack == nullptr)
    return std::nullopt;
  const auto words = words_of_stack(pid, *stack, *top);
  if (!words)
    return std::nullopt;
  std::vector<std::string> modules;
  for (const std::uint64_t word : *words) {
    const Mapping* mapping = mapping_of(mappings, word);
    if (mapping != nullptr && mapping->executable && !mapping->path.empty() &&
        std::find(modules.begin(), modules.end(), mapping->path) == modules.end() &&
        is_behind_call(pid, word))
      modules.push_back(mapping->path);
  }
  return modules;
}

}  // namespace lockstep::os
