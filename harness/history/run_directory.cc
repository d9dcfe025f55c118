#include "harness/history/run_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>

#include "harness/base/clock.h"
#include "harness/history/run_files.h"
#include "harness/history/run_json.h"

namespace fs = std::filesystem;

namespace lockstep::history {
namespace {

constexpr std::uint64_t kFreeBytesMin = 1U << 20;
constexpr const char* kElsewhere = "choose another place with --run-dir";

Error cannot(const std::string& what, const std::string& path, int error) {
  return {Error::Kind::kEnvironment,
          fmt::format("cannot {} {}: {}", what, path, std::strerror(error)), kElsewhere};
}

/// "20261121-174012-81c0": sorts by time.
std::string new_id() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &parts);
  return fmt::format("{}-{:04x}", text, std::random_device{}() & 0xffff);
}

bool is_id(const std::string& name) {
  constexpr std::string_view kForm = "dddddddd-dddddd-xxxx";
  return name.size() == kForm.size() &&
         std::equal(name.begin(), name.end(), kForm.begin(), [](char c, char form) {
           return form == 'd'   ? c >= '0' && c <= '9'
                  : form == 'x' ? std::isxdigit(c) != 0
                                : c == form;
         });
}

/// A store to a page of these can block for seconds, or is not seen by others at once.
bool is_remote(const std::string& path) {
  constexpr std::uint32_t kRemote[] = {
      NFS_SUPER_MAGIC,        SMB_SUPER_MAGIC,        0xff534d42U /* cifs */,
      0xfe534d42U /* smb2 */, 0x65735546U /* fuse */, 0x0bd00bd0U /* lustre */,
      0x01021997U /* 9p */,   0x00c36400U /* ceph */, 0x47504653U /* gpfs */,
      AFS_SUPER_MAGIC,        CODA_SUPER_MAGIC};
  struct statfs status {};
  return ::statfs(path.c_str(), &status) != 0 ||
         std::find(std::begin(kRemote), std::end(kRemote),
                   static_cast<std::uint32_t>(status.f_type)) != std::end(kRemote);
}

std::uint64_t free_bytes(const std::string& path) {
  struct statvfs status {};
  return ::statvfs(path.c_str(), &status) == 0 ? std::uint64_t{status.f_bavail} * status.f_frsize
                                               : 0;
}

bool is_ample_tmpfs(const std::string& path, std::uint64_t bytes) {
  struct statfs status {};
  return ::statfs(path.c_str(), &status) == 0 &&
         static_cast<std::uint32_t>(status.f_type) == TMPFS_MAGIC &&
         free_bytes(path) / 2 >= bytes && ::access(path.c_str(), W_OK) == 0;
}

/// Removes the oldest runs but keeps `keep`, and those that are still open.
void prune(const std::string& home, std::size_t keep) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(home, ignored)) {
    if (entry.is_directory(ignored) && !entry.is_symlink(ignored) &&
        is_id(entry.path().filename().string()))
      names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  for (std::size_t i = 0; i + keep < names.size(); ++i) {
    const std::string path = home + "/" + names[i];
    const UniqueFd lock(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!lock || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
      continue;
    remove_live_of(path);
    fs::remove_all(path, ignored);
  }
}

Result<void> require_empty(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status))
    return {};
  if (!fs::is_directory(status))
    return Error{Error::Kind::kUsage, fmt::format("--run-dir {} is not a directory", path),
                 "name a new or empty one"};
  const bool empty = fs::is_empty(path, error);
  if (error)
    return Error{Error::Kind::kEnvironment,
                 fmt::format("cannot read {}: {}", path, error.message()), ""};
  if (!empty)
    return Error{Error::Kind::kUsage, fmt::format("--run-dir {} is not empty", path),
                 "name a new or empty directory"};
  return {};
}

}  // namespace

Result<RunDirectory> RunDirectory::create(const RunOptions& options) {
  RunDirectory run;
  run.id_ = new_id();
  if (!options.run_dir.empty()) {
    if (auto empty = require_empty(options.run_dir); !empty)
      return empty.error();
  }
  std::error_code error;
  const fs::path wanted =
      options.run_dir.empty() ? fs::path(options.home) / run.id_ : fs::path(options.run_dir);
  run.path_ = fs::absolute(wanted, error).lexically_normal().string();
  while (run.path_.size() > 1 && run.path_.back() == '/')
    run.path_.pop_back();
  if (auto made = run.make_layout(options); !made)
    return made.error();
  if (options.run_dir.empty())
    prune(fs::path(run.path_).parent_path().string(), options.keep);
  return run;
}

RunDirectory RunDirectory::of_suite(std::string path, std::string id, std::string cases_live_in) {
  RunDirectory run;
  run.path_ = std::move(path);
  run.id_ = std::move(id);
  run.cases_live_in_ = std::move(cases_live_in);
  return run;
}

std::string RunDirectory::cases_live_in() const {
  return own_live_ ? fs::path(live_).parent_path().string() : cases_live_in_;
}

Result<RunDirectory> RunDirectory::create_case(const std::string& case_id) const {
  RunDirectory run;
  run.id_ = id_;
  run.path_ = case_path(path_, case_id);
  RunOptions options;
  options.shm = cases_live_in();
  if (auto made = run.make_layout(options); !made)
    return made.error();
  return run;
}

/// Makes the directories; takes them away again if one of them cannot be made.
Result<void> RunDirectory::make_layout(const RunOptions& options) {
  const bool existed = fs::exists(path_);
  const auto fail = [&](Error error) {
    std::error_code ignored;
    for (const char* part : {"history", "tensors", "stacks", "logs"})
      fs::remove_all(path_ + "/" + part, ignored);
    if (!existed)
      fs::remove(path_, ignored);
    return error;
  };
  std::error_code error;
  for (const char* part : {"", "/history", "/tensors", "/stacks", "/logs"}) {
    fs::create_directories(path_ + part, error);
    if (error)
      return fail(cannot("create", path_ + part, error.value()));
  }
  if (const std::uint64_t have = free_bytes(path_); have < kFreeBytesMin)
    return fail(Error{
        Error::Kind::kEnvironment,
        fmt::format("cannot record in {}: {} bytes are free, need {}", path_, have, kFreeBytesMin),
        "free some space, or choose another place with --run-dir"});
  if (::access((path_ + "/history").c_str(), W_OK) != 0)
    return fail(cannot("write in", path_, errno));
  lock_ = UniqueFd(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock_ || ::flock(lock_.get(), LOCK_SH | LOCK_NB) != 0)
    return fail(cannot("lock", path_, errno));
  if (auto chosen = choose_live(options); !chosen)
    return fail(chosen.error());
  return {};
}

/// tmpfs if ample; else RUN/history; never a remote file system.
Result<void> RunDirectory::choose_live(const RunOptions& options) {
  std::vector<std::string> places;
  if (!options.shm.empty() && is_ample_tmpfs(options.shm, options.live_bytes))
    places.push_back(options.shm);
  if (!is_remote(history())) {
    places.push_back("");
  } else {
    const char* const temporary = std::getenv("TMPDIR");
    for (const char* const place : {temporary == nullptr ? "/tmp" : temporary, "/tmp"}) {
      if (!is_remote(place))
        places.emplace_back(place);
    }
  }
  for (const std::string& place : places) {
    live_ = place.empty() ? history()
                          : fmt::format("{}/{}{}-{}-XXXXXX", place, kLivePrefix, ::getuid(), id_);
    own_live_ = !place.empty();
    if (!own_live_)
      return {};
    if (::mkdtemp(live_.data()) == nullptr)
      continue;
    // So that they are found if nobody comes to move them.
    std::error_code error;
    live_lock_ = UniqueFd(::open(live_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    (void)::flock(live_lock_.get(), LOCK_SH | LOCK_NB);
    fs::create_directory_symlink(live_, history() + "/" + kLiveLink, error);
    if (!error)
      fs::create_directory_symlink(history(), live_ + "/" + kRunLink, error);
    if (!error)
      return {};
    fs::remove_all(live_, error);
  }
  live_.clear();
  own_live_ = false;
  return Error{Error::Kind::kEnvironment,
               fmt::format("no place for live history files: {} is on a network file system, and "
                           "neither {} nor /tmp "
                           "can be used",
                           path_, options.shm),
               kElsewhere};
}

RunDirectory::~RunDirectory() {
  if (own_live_ && !live_.empty())
    (void)close();
}

std::string RunDirectory::log(Rank rank, std::string_view stream) const {
  return fmt::format("{}/logs/{}.{}", path_, rank.value, stream);
}

Result<void> RunDirectory::write_plan(const Plan& plan) const {
  Plan named = plan;
  if (named.id.empty())
    named.id = id_;
  timespec wall{};
  clock_gettime(CLOCK_REALTIME, &wall);
  const auto wall_ns = static_cast<std::uint64_t>(wall.tv_sec) * 1'000'000'000U +
                       static_cast<std::uint64_t>(wall.tv_nsec);
  return write_file(path_ + "/run.json", plan_to_json(named, now_ns(), wall_ns));
}

void RunDirectory::drop_tensors() const {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(tensors(), ignored))
    fs::remove_all(entry.path(), ignored);
}

Result<void> RunDirectory::close() {
  if (!own_live_) {
    lock_.reset();
    return {};
  }
  if (auto moved = move_files(live_, history()); !moved)
    return moved;
  std::error_code ignored;
  fs::remove(history() + "/" + kLiveLink, ignored);
  fs::remove_all(live_, ignored);  // What is left is of the shim, and was read.
  live_ = history();
  own_live_ = false;
  live_lock_.reset();
  lock_.reset();
  return {};
}

}  // namespace lockstep::history
