// What others read of a run that goes on.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "harness/base/unique_fd.h"
#include "harness/history/byte_source.h"
#include "harness/history/follower.h"
#include "harness/history/format.h"
#include "harness/history/heads.h"
#include "harness/history/run_files.h"
#include "harness/history/run_json.h"

namespace fs = std::filesystem;

namespace lockstep::history {
namespace {

const std::string kPlace = std::string("/history/") + kNow;
constexpr std::uint64_t kSlotsMax = 4096;  // Of each process; counts and digests tell of the rest.
constexpr std::size_t kBlock = 16384;
constexpr std::uint64_t kPlanBytesMax = 64U << 20;

bool is_zero(const std::vector<std::byte>& bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{}; });
}

/// What is not zero of these bytes goes to the same place. Zero or an errno.
int copy_part(ByteSource& from, int to, std::uint64_t begin, std::uint64_t end) {
  std::vector<std::byte> block;
  while (begin < end) {
    block.resize(std::min<std::uint64_t>(kBlock, end - begin));
    block.resize(from.read(begin, block));
    if (block.empty())
      return 0;
    const auto count = static_cast<ssize_t>(block.size());
    if (!is_zero(block) &&
        ::pwrite(to, block.data(), block.size(), static_cast<off_t>(begin)) != count)
      return errno == 0 ? ENOSPC : errno;
    begin += block.size();
  }
  return 0;
}

/// Its tables and the end of its ring. The numbers of records are read first: what is written
/// meanwhile is not looked for.
int copy_recent(ByteSource& from, int to) {
  FileHeader header{};
  if (from.read(0, std::as_writable_bytes(std::span(&header, 1))) != sizeof header ||
      header.magic != kFileMagic)
    return 0;
  int error = copy_part(from, to, 0, header.ring_offset);
  const std::uint64_t slots =
      header.ring_final != 0 ? header.ring_final : std::max<std::uint64_t>(header.ring_capacity, 1);
  const std::uint64_t count = std::min({header.next_record, kSlotsMax, slots});
  for (std::uint64_t record = header.next_record - count;
       record < header.next_record && error == 0;) {
    const std::uint64_t index = record % slots;
    const std::uint64_t here = std::min(header.next_record - record, slots - index);
    const std::uint64_t at = header.ring_offset + index * sizeof(Slot);
    error = copy_part(from, to, at, at + here * sizeof(Slot));
    record += here;
  }
  // Space that is there and was not written is none that is missing.
  return error != 0 || ::ftruncate(to, static_cast<off_t>(from.size())) == 0 ? error : errno;
}

Result<void> cannot(const std::string& path, int error) {
  return Error{Error::Kind::kIo, fmt::format("cannot write {}: {}", path, std::strerror(error)),
               ""};
}

Result<void> copy_to(const std::string& path, const std::string& from) {
  const auto source = FileSource::open(from);
  if (!source)
    return {};  // It has just gone.
  const std::string temporary = path + ".tmp";
  UniqueFd to(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  int error = to ? copy_recent(**source, to.get()) : errno;
  to.reset();
  if (error == 0 && ::rename(temporary.c_str(), path.c_str()) != 0)
    error = errno;
  return error == 0 ? Result<void>() : cannot(path, error);
}

}  // namespace

Result<void> write_snapshot(const RunDirectory& run) {
  const std::string place = run.path() + kPlace;
  std::error_code error;
  fs::create_directory(place, error);
  for (fs::directory_iterator at(run.live(), error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().extension() != kHistory)
      continue;
    const std::string name = at->path().filename().string();
    if (auto copied = copy_to(place + "/" + name, at->path().string()); !copied)
      return copied;
  }
  // It is written on this host all the time; what of it has got there is not known otherwise.
  const UniqueFd journal(::open(run.journal().c_str(), O_WRONLY | O_CLOEXEC));
  if (error || !journal || ::fsync(journal.get()) != 0)
    return cannot(place, error ? error.value() : errno);
  return {};
}

Result<Run> read_snapshot(const std::string& run_directory) {
  const std::string path = run_directory + "/run.json";
  const Result<std::string> text = read_whole(path, kPlanBytesMax);
  if (!text)
    return text.error();
  Result<Plan> plan = plan_from_json(*text, path);
  if (!plan)
    return plan.error();
  Follower follower(run_directory + kPlace, run_directory + "/history/lockstep.jsonl",
                    std::move(*plan));
  follower.poll();
  Run run = follower.run();
  run.directory = run_directory;
  return run;
}

void remove_snapshot(const std::string& run_directory) {
  std::error_code ignored;
  fs::remove_all(run_directory + kPlace, ignored);
}

}  // namespace lockstep::history
