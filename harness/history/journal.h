// The supervisor's own events, one JSON object a line: RUN/history/lockstep.jsonl. Records are
// numbered, and the last one says how many there are, so that a gap or a cut shows.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "harness/base/error.h"
#include "harness/base/unique_fd.h"
#include "harness/history/byte_source.h"
#include "harness/history/run.h"

namespace lockstep::history {

/// Appends events; each is in the file, whole or not at all, when append() returns. `record` is set
/// by the writer. Not for use by two threads at once.
///
/// An append that fails (full disk) has used its number, so the reader sees the gap; close() says
/// it again.
class JournalWriter {
 public:
  /// Creates the file. Errors: kIo, also if it exists.
  static Result<JournalWriter> create(const std::string& path);

  Result<void> append(const ProcessStart& event);
  Result<void> append(const ProcessEnd& event);
  Result<void> append(const Acted& event);
  Result<void> append(const StateSample& event);
  Result<void> append(const StackSample& event);
  /// With answered_ns it is the answer to the request of that role, rank and id; without it the
  /// request.
  Result<void> append(const Request& event);
  Result<void> append(const Observation& event);
  Result<void> append(const Raised& event);
  Result<void> append(const Mark& event);
  Result<void> append(const Note& event);
  Result<void> append(const Leftover& event);
  Result<void> append(const Unwaited& event);
  Result<void> append(const Descriptors& event);
  Result<void> append(const LauncherEnd& event);
  Result<void> append(const Stranger& event);
  Result<void> append(const HostSilent& event);
  Result<void> append(const Unacknowledged& event);

  /// The closing record. Errors: of any append before, too.
  Result<void> close();

 private:
  explicit JournalWriter(UniqueFd fd, std::string path)
      : fd_(std::move(fd)), path_(std::move(path)) {}
  /// `json`: an object without its record number, which is put in front.
  Result<void> write_line(const std::string& kind, std::uint64_t at_ns, const std::string& json);

  UniqueFd fd_;
  std::string path_;
  std::uint64_t written_{};  // Numbers used.
  std::uint64_t bytes_{};
  std::string first_error_;
};

/// Reads a journal piece by piece into a Run.
class JournalReader {
 public:
  JournalReader(std::unique_ptr<ByteSource> source, std::string name);
  ~JournalReader();
  JournalReader(JournalReader&&) noexcept;
  JournalReader& operator=(JournalReader&&) noexcept;

  /// Adds what is new to `run`; true if anything was. `final`: nobody writes any more; what is
  /// torn, garbage or absent goes to Run::missing, and Run::journal_complete is decided.
  bool poll(Run& run, bool final);

 private:
  void take_line(Run& run, std::string_view line);
  void say(Run& run, const std::string& what);

  std::unique_ptr<ByteSource> source_;
  std::string name_;
  std::uint64_t offset_{};
  std::string tail_;      // Of the last read: a line without its end, so far.
  bool skipping_{};       // Inside a line that is too long.
  std::uint64_t last_{};  // Number of the last record.
  std::uint64_t garbage_{}, gaps_{}, taken_{};
  bool closed_{};
};

}  // namespace lockstep::history
