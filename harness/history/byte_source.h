// Where a reader gets its bytes: a file (never mapped, since another process may truncate it), or
// memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "harness/base/error.h"

namespace lockstep::history {

/// Bytes that may change, grow and shrink between two reads.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual std::uint64_t size() = 0;
  /// Fills `into` from `offset` on and says how many bytes there were; fewer at the end or on an
  /// I/O error.
  virtual std::size_t read(std::uint64_t offset, std::span<std::byte> into) = 0;
};

class FileSource final : public ByteSource {
 public:
  static Result<std::unique_ptr<FileSource>> open(const std::string& path);
  ~FileSource() override;
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;
  std::uint64_t size() override;
  std::size_t read(std::uint64_t offset, std::span<std::byte> into) override;

 private:
  explicit FileSource(int fd) : fd_(fd) {}
  int fd_;
};

class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::uint64_t size() override { return bytes_.size(); }
  std::size_t read(std::uint64_t offset, std::span<std::byte> into) override;

 private:
  std::span<const std::byte> bytes_;
};

/// The whole file if it is not longer than `bytes_max`, else an Error.
Result<std::string> read_whole(const std::string& path, std::uint64_t bytes_max);

}  // namespace lockstep::history
