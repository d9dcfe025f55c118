#include "harness/launch/cleanup_page.h"

#include <fmt/format.h>
#include <linux/limits.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

namespace lockstep::launch {

// Shared between two processes and read after the death of the writer, so `kind` is stored last.
// Only pages that are used take memory.
struct CleanupPage::Slot {
  std::atomic<std::uint32_t> kind{};
  char path[PATH_MAX]{};
  char destination[PATH_MAX]{};
};

namespace {

constexpr std::size_t kSlots = 64;
namespace fs = std::filesystem;

std::string remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  return error ? fmt::format("cannot remove {}: {}", path.string(), error.message()) : "";
}

// Live files lie on another file system than RUN, so they are copied.
std::string rescue_files(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::create_directories(to, error);
  std::string problem;
  for (fs::directory_iterator at(from, error), end; !error && at != end; at.increment(error)) {
    std::error_code failed;
    if (at->is_symlink(failed))
      continue;
    fs::copy(at->path(), to / at->path().filename(),
             fs::copy_options::recursive | fs::copy_options::skip_existing, failed);
    if (failed)
      problem = fmt::format("cannot keep {} in {}: {}", at->path().string(), to.string(),
                            failed.message());
  }
  const std::string removal = remove_tree(from);
  return problem.empty() ? removal : problem;
}

}  // namespace

Result<std::shared_ptr<CleanupPage>> CleanupPage::create() {
  void* memory = ::mmap(nullptr, sizeof(Slot) * kSlots, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return Error{Error::Kind::kEnvironment, fmt::format("mmap: {}", std::strerror(errno)), ""};
  std::shared_ptr<CleanupPage> page(new CleanupPage());
  page->slots_ = static_cast<Slot*>(memory);  // zeros are free slots
  return page;
}

CleanupPage::~CleanupPage() { ::munmap(slots_, sizeof(Slot) * kSlots); }

Result<CleanupPage::Handle> CleanupPage::add(Kind kind, const std::string& path,
                                             const std::string& destination) {
  if (path.size() >= PATH_MAX || destination.size() >= PATH_MAX)
    return Error{Error::Kind::kUsage, fmt::format("a path of more than {} bytes", PATH_MAX - 1),
                 ""};
  for (std::size_t i = 0; i < kSlots; ++i) {
    Slot& slot = slots_[i];
    if (slot.kind.load(std::memory_order_relaxed) != static_cast<std::uint32_t>(Kind::kFree))
      continue;
    std::memcpy(slot.path, path.c_str(), path.size() + 1);
    std::memcpy(slot.destination, destination.c_str(), destination.size() + 1);
    slot.kind.store(static_cast<std::uint32_t>(kind), std::memory_order_release);
    return Handle(shared_from_this(), i);
  }
  return Error{Error::Kind::kEnvironment, fmt::format("more than {} paths to clean up", kSlots),
               ""};
}

std::string CleanupPage::run_directory() const {
  for (std::size_t i = 0; i < kSlots; ++i) {
    if (slots_[i].kind.load(std::memory_order_acquire) == static_cast<std::uint32_t>(Kind::kRun))
      return slots_[i].path;
  }
  return "";
}

Result<void> CleanupPage::add_spared(const os::ProcessId& process) {
  Result<Handle> noted =
      add(Kind::kSpare, std::to_string(process.pid), std::to_string(process.start_ticks));
  if (!noted)
    return noted.error();
  noted->page_.reset();  // Not settled with its handle.
  return {};
}

std::vector<os::ProcessId> CleanupPage::spared() const {
  std::vector<os::ProcessId> spared;
  for (std::size_t i = 0; i < kSlots; ++i) {
    const Slot& slot = slots_[i];
    if (slot.kind.load(std::memory_order_acquire) == static_cast<std::uint32_t>(Kind::kSpare))
      spared.push_back({static_cast<std::int32_t>(std::strtol(slot.path, nullptr, 10)),
                        std::strtoull(slot.destination, nullptr, 10)});
  }
  return spared;
}

std::vector<std::string> CleanupPage::settle_all() {
  std::vector<std::string> problems;
  for (std::size_t i = 0; i < kSlots; ++i) {
    Slot& slot = slots_[i];
    const auto kind =
        static_cast<Kind>(slot.kind.exchange(static_cast<std::uint32_t>(Kind::kFree)));
    std::string problem;
    if (kind == Kind::kRemove)
      problem = remove_tree(slot.path);
    else if (kind == Kind::kRescue)
      problem = rescue_files(slot.path, slot.destination);
    if (!problem.empty())
      problems.push_back(std::move(problem));
  }
  return problems;
}

CleanupPage::Handle::Handle(Handle&& other) noexcept
    : page_(std::move(other.page_)), slot_(other.slot_) {}

CleanupPage::Handle& CleanupPage::Handle::operator=(Handle&& other) noexcept {
  if (this != &other) {
    settle();
    page_ = std::move(other.page_);
    slot_ = other.slot_;
  }
  return *this;
}

CleanupPage::Handle::~Handle() { settle(); }

void CleanupPage::Handle::settle() {
  if (!page_)
    return;
  Slot& slot = page_->slots_[slot_];
  if (static_cast<Kind>(slot.kind.load()) == Kind::kRemove)
    remove_tree(slot.path);
  slot.kind.store(static_cast<std::uint32_t>(Kind::kFree), std::memory_order_release);
  page_.reset();
}

}  // namespace lockstep::launch
