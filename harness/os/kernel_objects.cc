#include "harness/os/kernel_objects.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string_view>

#include "harness/os/proc.h"

namespace lockstep::os {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSharedMemory = "/dev/shm";
constexpr std::size_t kCommandMax = 200;
constexpr std::size_t kKindsMax = 4;

std::optional<std::int32_t> number_after(std::string_view text, std::string_view start) {
  std::int32_t number = 0;
  if (text.substr(0, start.size()) != start)
    return std::nullopt;
  text.remove_prefix(start.size());
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = read.ec == std::errc() && read.ptr != text.data() + text.size() &&
                     *read.ptr == '_' && number > 0;
  return whole ? std::optional(number) : std::nullopt;
}

// torch_PID_RANDOM_COUNT: libshm. sem.mp-, psm_: Python's multiprocessing. nccl-: NCCL.
bool is_of_a_job(SharedObject& object, std::string_view name) {
  const auto starts = [&](std::string_view with) { return name.substr(0, with.size()) == with; };
  object.maker = number_after(name, "torch_");
  object.private_name = object.maker || starts("sem.mp-") || starts("nccl-");
  return object.private_name || starts("psm_");
}

// "socket:[1]" is a socket, "anon_inode:[eventpoll]" an eventpoll, a path a file in its directory.
std::string kind_of(const std::string& target) {
  const bool path = !target.empty() && target.front() == '/';
  if (path)
    return fmt::format("file in {}", fs::path(target).parent_path().string());
  const std::size_t open = target.find(":[");
  const std::string kind = target.substr(0, std::min(open, target.find(':')));
  return kind == "anon_inode" && open != std::string::npos
             ? target.substr(open + 2, target.find(']') - open - 2)
             : kind;
}

std::uint64_t limit_of(std::int32_t pid) {
  std::ifstream file(fmt::format("/proc/{}/limits", pid));
  constexpr std::string_view kName = "Max open files";
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, kName.size(), kName) == 0)
      return std::strtoull(line.c_str() + kName.size(), nullptr, 10);
  }
  return 0;
}

}  // namespace

std::vector<std::string> descriptor_targets(std::int32_t pid) {
  std::vector<std::string> targets;
  std::error_code error;
  for (fs::directory_iterator at(fmt::format("/proc/{}/fd", pid), error), end; !error && at != end;
       at.increment(error)) {
    std::error_code gone;
    const fs::path target = fs::read_symlink(at->path(), gone);
    if (!gone)
      targets.push_back(target.string());
  }
  return targets;
}

std::optional<std::uint64_t> count_descriptors(std::int32_t pid) {
  struct stat status {};
  if (::stat(fmt::format("/proc/{}/fd", pid).c_str(), &status) != 0)
    return std::nullopt;
  if (status.st_size > 0)
    return static_cast<std::uint64_t>(status.st_size);
  return descriptor_targets(pid).size();
}

std::optional<OpenDescriptors> open_descriptors_of(std::int32_t pid) {
  std::map<std::string, std::uint64_t> counted;
  OpenDescriptors descriptors;
  for (const std::string& target : descriptor_targets(pid)) {
    ++descriptors.open;
    ++counted[kind_of(target)];
  }
  if (descriptors.open == 0)
    return std::nullopt;
  descriptors.limit = limit_of(pid);
  descriptors.kinds.assign(counted.begin(), counted.end());
  std::stable_sort(descriptors.kinds.begin(), descriptors.kinds.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  if (descriptors.kinds.size() > kKindsMax)
    descriptors.kinds.resize(kKindsMax);
  return descriptors;
}

std::vector<SharedObject> shared_objects() {
  std::vector<SharedObject> objects;
  std::error_code error;
  for (fs::directory_iterator at(kSharedMemory, error), end; !error && at != end;
       at.increment(error)) {
    SharedObject object{.path = at->path().string()};
    struct stat status {};
    if (!is_of_a_job(object, at->path().filename().string()) ||
        ::lstat(object.path.c_str(), &status) != 0 || !S_ISREG(status.st_mode) ||
        status.st_uid != ::geteuid())
      continue;
    object.inode = status.st_ino;
    object.bytes = static_cast<std::uint64_t>(status.st_size);
    objects.push_back(std::move(object));
  }
  std::sort(objects.begin(), objects.end(),
            [](const SharedObject& a, const SharedObject& b) { return a.path < b.path; });
  return objects;
}

bool holds(std::int32_t pid, const SharedObject& object) {
  const std::vector<std::string> targets = descriptor_targets(pid);
  if (std::find(targets.begin(), targets.end(), object.path) != targets.end())
    return true;
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  for (std::string line; std::getline(maps, line);) {
    if (line.size() > object.path.size() &&
        line.compare(line.size() - object.path.size(), object.path.size(), object.path) == 0)
      return true;
  }
  return false;
}

std::uint64_t bytes_read_by(std::int32_t pid) {
  std::ifstream file(fmt::format("/proc/{}/io", pid));
  std::string field;
  std::uint64_t bytes = 0;
  return file >> field >> bytes && field == "rchar:" ? bytes : 0;
}

std::string command_line(std::int32_t pid) {
  std::ifstream file(fmt::format("/proc/{}/cmdline", pid), std::ios::binary);
  std::string line((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  while (!line.empty() && line.back() == '\0')
    line.pop_back();
  std::replace_if(
      line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  if (line.size() > kCommandMax)
    line = line.substr(0, kCommandMax) + "...";
  if (!line.empty())
    return line;
  const std::optional<ProcessStat> process = read_process(pid);
  return process ? fmt::format("[{}]", process->name) : "";
}

}  // namespace lockstep::os
