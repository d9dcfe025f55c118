#include "harness/diagnose/sleep_notes.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

namespace lockstep::diagnose {
namespace {

constexpr std::size_t kNotesMax = 65'536;

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id;
}

}  // namespace

SleepNotes::SleepNotes(std::string path) : path_(std::move(path)), boot_id_(boot_id()) {
  std::ifstream file(path_);
  std::string of_boot;
  if (path_.empty() || !(file >> of_boot) || of_boot != boot_id_)
    return;
  os::ProcessId id;
  Note note;
  while (notes_.size() < kNotesMax &&
         file >> id.pid >> id.start_ticks >> note.switches >> note.since_ns)
    notes_[id] = note;
}

std::optional<std::uint64_t> SleepNotes::since_ns(const os::ProcessId& id,
                                                  std::uint64_t switches) const {
  const auto at = notes_.find(id);
  return at != notes_.end() && at->second.switches == switches ? std::optional(at->second.since_ns)
                                                               : std::nullopt;
}

void SleepNotes::note(const os::ProcessId& id, std::uint64_t switches, std::uint64_t since_ns) {
  notes_[id] = {switches, since_ns};
}

void SleepNotes::save() const {
  if (path_.empty())
    return;
  std::error_code ignored;
  const std::filesystem::path path(path_);
  std::filesystem::create_directories(path.parent_path(), ignored);
  const std::string draft = fmt::format("{}.{}", path_, ::getpid());
  std::ofstream file(draft, std::ios::trunc);
  file << boot_id_ << "\n";
  for (const auto& [id, note] : notes_) {
    const auto process = os::read_process(id.pid);
    if (process && process->id == id)
      file << id.pid << " " << id.start_ticks << " " << note.switches << " " << note.since_ns
           << "\n";
  }
  file.close();
  std::filesystem::rename(draft, path, ignored);
}

std::string SleepNotes::usual_path() {
  const auto variable = [](const char* name) -> std::string {
    const char* const value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  std::string cache = variable("XDG_CACHE_HOME");
  if (cache.empty() && !variable("HOME").empty())
    cache = variable("HOME") + "/.cache";
  return cache.empty() ? "" : cache + "/lockstep/asleep";
}

}  // namespace lockstep::diagnose
