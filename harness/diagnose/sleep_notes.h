// Since when threads have slept, kept from one look to the next: a look stops a thread for an
// instant, after which the kernel says that it has just run. In the user's cache, none of the
// job's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "harness/os/proc.h"

namespace lockstep::diagnose {

class SleepNotes {
 public:
  /// `path`: empty: kept for the life of this object alone.
  explicit SleepNotes(std::string path);

  /// None if the thread has run since it was noted.
  [[nodiscard]] std::optional<std::uint64_t> since_ns(const os::ProcessId& id,
                                                      std::uint64_t switches) const;
  /// `switches`: as of the end of a look.
  void note(const os::ProcessId& id, std::uint64_t switches, std::uint64_t since_ns);
  /// Of processes that live. What cannot be written is not kept.
  void save() const;

  /// ~/.cache/lockstep/asleep; empty where there is no home.
  static std::string usual_path();

 private:
  struct Note {
    std::uint64_t switches{}, since_ns{};
  };
  std::string path_;
  std::string boot_id_;
  std::map<os::ProcessId, Note> notes_{};
};

}  // namespace lockstep::diagnose
