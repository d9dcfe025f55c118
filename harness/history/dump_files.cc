#include "harness/history/dump_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <future>
#include <optional>
#include <thread>

#include "harness/history/dump_reader.h"

namespace fs = std::filesystem;

namespace lockstep::history {
namespace {

constexpr std::size_t kFilesPerCore = 8;  // At a time.

Result<DumpRead> read_ring(const std::string& file, Wanted wanted) {
  auto source = FileSource::open(file);
  if (!source)
    return source.error();
  DumpRead read{.head = {}, .ring = DumpRing(std::move(wanted))};
  auto head = read_dump(**source, file, [&](const DumpEntry& entry, const DumpWords& words) {
    read.ring.add(entry, words);
  });
  if (!head)
    return head.error();
  read.head = std::move(*head);
  read.ring.finish(read.head);
  return read;
}

}  // namespace

std::vector<std::string> files_of(const std::string& path) {
  std::vector<std::string> files;
  std::error_code error;
  if (!fs::is_directory(path, error))
    return {path};
  for (const auto& entry : fs::directory_iterator(path, error)) {
    if (entry.is_regular_file(error))
      files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

bool is_dump(const std::string& file) {
  auto source = FileSource::open(file);
  return source && looks_like_dump(**source);
}

std::uint64_t written_ns(const std::string& file) {
  struct stat status {};
  if (stat(file.c_str(), &status) != 0)
    return 0;
  return static_cast<std::uint64_t>(status.st_mtim.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(status.st_mtim.tv_nsec);
}

void read_rings(const std::vector<std::string>& files, const Wanted& wanted, const TakeDump& take) {
  const std::size_t cores = std::clamp(std::thread::hardware_concurrency(), 1U, 16U);
  for (std::size_t first = 0; first < files.size(); first += kFilesPerCore * cores) {
    const std::size_t count = std::min(kFilesPerCore * cores, files.size() - first);
    std::vector<std::optional<Result<DumpRead>>> reads(count);
    std::atomic<std::size_t> next = 0;
    const auto work = [&] {
      for (std::size_t i = next++; i < count; i = next++)
        reads[i] = read_ring(files[first + i], wanted);
    };
    std::vector<std::future<void>> others;
    for (std::size_t core = 1; core < std::min(cores, count); ++core)
      others.push_back(std::async(std::launch::async, work));
    work();
    for (std::future<void>& other : others)
      other.get();
    for (std::size_t i = 0; i < count; ++i)
      take(files[first + i], *reads[i]);
  }
}

}  // namespace lockstep::history
