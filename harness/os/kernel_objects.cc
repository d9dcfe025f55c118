#include "harness/os/kernel_objects.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
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
bool is_of_a_job(NamedObject& object, std::string_view name) {
  const auto starts = [&](std::string_view with) { return name.substr(0, with.size()) == with; };
  object.maker = number_after(name, "torch_");
  object.private_name = object.maker || starts("sem.mp-") || starts("nccl-");
  return object.private_name || starts("psm_");
}

template <typename Visit>
void for_each_entry(const fs::path& directory, const Visit& visit) {
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error))
    visit(at->path());
}

fs::path temporary_directory() {
  std::error_code error;
  return fs::temp_directory_path(error);
}

/// One of this user's, of this type.
void add(std::vector<NamedObject>& objects, NamedObject object, mode_t type) {
  struct stat status {};
  if (::lstat(object.path.c_str(), &status) != 0 || (status.st_mode & S_IFMT) != type ||
      status.st_uid != ::geteuid())
    return;
  object.inode = status.st_ino;
  object.bytes = static_cast<std::uint64_t>(status.st_size);
  object.targets = {object.path};
  objects.push_back(std::move(object));
}

/// NAME/lock, in a folder for each Python and accelerator unless TORCH_EXTENSIONS_DIR says where.
std::vector<fs::path> locks_of_extensions() {
  std::vector<fs::path> roots;
  if (const char* const set = std::getenv("TORCH_EXTENSIONS_DIR"); set != nullptr) {
    roots.emplace_back(set);
  } else if (const char* const home = std::getenv("HOME"); home != nullptr) {
    for_each_entry(fs::path(home) / ".cache" / "torch_extensions",
                   [&](const fs::path& path) { roots.push_back(path); });
  }
  std::vector<fs::path> locks;
  for (const fs::path& root : roots)
    for_each_entry(root, [&](const fs::path& path) { locks.push_back(path / "lock"); });
  return locks;
}

/// The last field of a line of /proc/net/unix is the path that a socket is bound to; the one before
/// it is the inode.
void add_sockets(std::vector<NamedObject>& objects) {
  const auto is_directory = [](const NamedObject& object) {
    return object.kind == NamedObject::Kind::kDirectory;
  };
  if (std::none_of(objects.begin(), objects.end(), is_directory))
    return;
  std::ifstream file("/proc/net/unix");
  for (std::string line; std::getline(file, line);) {
    const std::size_t slash = line.find(" /");
    const std::size_t before = slash == std::string::npos ? slash : line.rfind(' ', slash - 1);
    if (before == std::string::npos)
      continue;
    const std::string_view directory =
        std::string_view(line).substr(slash + 1, line.rfind('/') - slash - 1);
    for (NamedObject& object : objects) {
      if (is_directory(object) && object.path == directory)
        object.targets.push_back(
            fmt::format("socket:[{}]", line.substr(before + 1, slash - before - 1)));
    }
  }
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

bool is_ordinary_file(const std::string& target) {
  const auto begins = [&](std::string_view with) { return target.rfind(with, 0) == 0; };
  return begins("/") && !begins("/dev/") && !begins("/proc/") && !begins("/sys/") &&
         !begins("/memfd:");
}

void count_file(std::vector<std::pair<std::string, std::uint64_t>>& files, std::string path) {
  constexpr std::size_t kFilesMax = 256;
  constexpr std::string_view kDeleted = " (deleted)";
  if (path.size() > kDeleted.size() &&
      path.compare(path.size() - kDeleted.size(), kDeleted.size(), kDeleted) == 0)
    path.resize(path.size() - kDeleted.size());
  const auto known = std::find_if(files.begin(), files.end(),
                                  [&](const auto& file) { return file.first == path; });
  if (known != files.end())
    ++known->second;
  else if (files.size() < kFilesMax)
    files.emplace_back(std::move(path), 1);
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

std::vector<std::string> gpus_among(const std::vector<std::string>& targets) {
  constexpr std::string_view kNvidia = "/dev/nvidia";  // Then a number; nvidiactl is for all.
  std::set<std::string> gpus;
  for (const std::string& target : targets) {
    if (target == "/dev/kfd" ||
        (target.rfind(kNvidia, 0) == 0 && target.size() > kNvidia.size() &&
         target.find_first_not_of("0123456789", kNvidia.size()) == std::string::npos))
      gpus.insert(target);
  }
  return {gpus.begin(), gpus.end()};
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
    if (is_ordinary_file(target))
      count_file(descriptors.files, target);
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

std::vector<NamedObject> named_objects() {
  std::vector<NamedObject> objects;
  for_each_entry(kSharedMemory, [&](const fs::path& path) {
    NamedObject object{.path = path.string()};
    if (is_of_a_job(object, path.filename().string()))
      add(objects, std::move(object), S_IFREG);
  });
  for_each_entry(temporary_directory(), [&](const fs::path& path) {
    const std::string name = path.filename().string();
    if (name.rfind("pymp-", 0) == 0 || name.rfind("torch-shm-dir-", 0) == 0)
      add(objects, {.kind = NamedObject::Kind::kDirectory, .path = path.string()}, S_IFDIR);
  });
  for (const fs::path& path : locks_of_extensions())
    add(objects, {.kind = NamedObject::Kind::kLock, .path = path.string()}, S_IFREG);
  add_sockets(objects);
  std::sort(objects.begin(), objects.end(),
            [](const NamedObject& a, const NamedObject& b) { return a.path < b.path; });
  return objects;
}

namespace {

/// PyTorch's FileBaton: others wait as long as the file is there, whose maker has it open to read.
/// Newer versions have the kernel lock a file that stays for good, and open it to write.
bool is_lock_by_being_there(std::int32_t pid, const std::string& path) {
  bool to_read = false;
  for_each_entry(fmt::format("/proc/{}/fd", pid), [&](const fs::path& descriptor) {
    std::error_code gone;
    if (fs::read_symlink(descriptor, gone) != path)
      return;
    std::ifstream info(fmt::format("/proc/{}/fdinfo/{}", pid, descriptor.filename().string()));
    int flags = O_WRONLY;
    for (std::string field; info >> field;) {
      if (field == "flags:")
        info >> std::oct >> flags;
    }
    to_read |= (flags & O_ACCMODE) == O_RDONLY;
  });
  return to_read;
}

}  // namespace

std::vector<NamedObject> held(std::int32_t pid, const std::vector<NamedObject>& objects) {
  std::set<std::string> has;
  for (std::string& target : descriptor_targets(pid))
    has.insert(std::move(target));
  const bool may_be_mapped = std::any_of(
      objects.begin(), objects.end(),
      [](const NamedObject& object) { return object.kind == NamedObject::Kind::kSegment; });
  if (may_be_mapped) {  // A long list, and what costs most here.
    std::ifstream maps(fmt::format("/proc/{}/maps", pid));
    for (std::string line; std::getline(maps, line);) {
      if (const std::size_t path = line.find(kSharedMemory); path != std::string::npos)
        has.insert(line.substr(path));
    }
  }
  std::vector<NamedObject> found;
  std::copy_if(
      objects.begin(), objects.end(), std::back_inserter(found), [&](const NamedObject& object) {
        return std::any_of(object.targets.begin(), object.targets.end(),
                           [&](const std::string& target) { return has.count(target) > 0; }) &&
               (object.kind != NamedObject::Kind::kLock ||
                is_lock_by_being_there(pid, object.path));
      });
  return found;
}

std::uint64_t bytes_read_by(std::int32_t pid) {
  std::ifstream file(fmt::format("/proc/{}/io", pid));
  std::string field;
  std::uint64_t number = 0, bytes = 0;
  while (file >> field >> number)
    bytes += field == "rchar:" || field == "read_bytes:" ? number : 0;
  return bytes;
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
