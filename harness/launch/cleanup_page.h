// What must not be left behind when the supervisor dies: paths in memory shared with the guard,
// written before the path is made and taken out when its owner has dealt with it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "harness/base/error.h"
#include "harness/os/proc.h"

namespace lockstep::launch {

class CleanupPage : public std::enable_shared_from_this<CleanupPage> {
 public:
  enum class Kind : std::uint32_t { kFree = 0, kRemove, kRescue, kRun, kSpare };

  static Result<std::shared_ptr<CleanupPage>> create();
  ~CleanupPage();
  CleanupPage(const CleanupPage&) = delete;
  CleanupPage& operator=(const CleanupPage&) = delete;

  /// One entry. When it goes, a kRemove path is removed; the entry is free again.
  class Handle {
   public:
    Handle() = default;
    Handle(Handle&& other) noexcept;
    Handle& operator=(Handle&& other) noexcept;
    ~Handle();

   private:
    friend class CleanupPage;
    Handle(std::shared_ptr<CleanupPage> page, std::size_t slot)
        : page_(std::move(page)), slot_(slot) {}
    void settle();
    std::shared_ptr<CleanupPage> page_{};
    std::size_t slot_{};
  };

  /// Errors: kUsage, a path longer than PATH_MAX; kEnvironment, all entries taken.
  Result<Handle> add(Kind kind, const std::string& path, const std::string& destination = "");

  /// The path of a kRun entry, or empty.
  [[nodiscard]] std::string run_directory() const;

  /// Notes a process that may outlive the job, for good. Errors: kEnvironment, all entries taken.
  Result<void> add_spared(const os::ProcessId& process);
  [[nodiscard]] std::vector<os::ProcessId> spared() const;

  /// Settles every entry; by the guard, after the supervisor's death. Returns what could not be
  /// done.
  std::vector<std::string> settle_all();

 private:
  struct Slot;
  CleanupPage() = default;
  Slot* slots_{};
};

}  // namespace lockstep::launch
