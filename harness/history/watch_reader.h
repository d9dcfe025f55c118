// Reads the file of the watch (watch_format.h), finished or still being written.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "harness/history/byte_source.h"
#include "harness/history/watched_values.h"

namespace lockstep::history {

/// The file beside the history at `path`; null if there is none.
std::unique_ptr<ByteSource> watch_beside(const std::string& path);

class WatchReader {
 public:
  explicit WatchReader(std::unique_ptr<ByteSource> source) : source_(std::move(source)) {}

  /// Takes what is new. True if anything was. What makes no sense ends it: `is_whole` says so.
  bool poll(WatchedValues& values);
  [[nodiscard]] bool is_whole() const { return !broken_; }

 private:
  bool take(const WatchHead& head, std::span<const std::byte> record, WatchedValues& values);

  std::unique_ptr<ByteSource> source_;
  std::uint64_t read_{sizeof(WatchHeader)};
  bool broken_{};
};

}  // namespace lockstep::history
