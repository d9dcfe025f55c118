// Tensor files in the safetensors format: 8 bytes of header length, a JSON header, the bytes. Read
// with bounded reads, written under a temporary name and renamed. This header stays free of
// third-party text and JSON libraries: the rank host includes it next to LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/base/error.h"
#include "harness/history/byte_source.h"
#include "harness/history/run.h"

namespace lockstep::history {

/// Bytes of one element; 0 for a type that is not of the format (F64 F32 F16 BF16 I64 I32 I16 I8 U8
/// BOOL are).
std::size_t element_bytes(std::string_view dtype);

/// FNV-1a of 64 bits, as 16 hex digits.
std::string digest_of(std::span<const std::byte> bytes);

/// A tensor to be written: contiguous elements, row by row, little endian.
struct TensorView {
  std::string name{};
  std::string dtype{};
  std::vector<std::int64_t> shape{};
  std::span<const std::byte> bytes{};
};

/// The same, owning its bytes.
struct TensorData {
  std::string name{};
  std::string dtype{};
  std::vector<std::int64_t> shape{};
  std::vector<std::byte> bytes{};
};

/// Converts to `dtype`: floats round to nearest even and keep NaN and infinities, integers
/// truncate. Aborts (our bug) if the number of values does not fit the shape.
TensorData make_tensor(std::string name, std::string dtype, std::vector<std::int64_t> shape,
                       std::span<const double> values);

/// Writes and renames; nothing is left under `path` or the temporary name on error.
Result<void> write_tensors(const std::string& path, std::span<const TensorView> tensors);
Result<void> write_tensors(const std::string& path, const std::vector<TensorData>& tensors);

struct TensorEntry {
  std::string name{};
  std::string dtype{};
  std::vector<std::int64_t> shape{};
  std::string digest{};
  std::uint64_t offset{};  ///< In the file.
  std::uint64_t size_bytes{};
};

/// An opened tensor file. Errors are kMalformedHistory (not this format) or kIo.
class TensorFile {
 public:
  static Result<TensorFile> open(const std::string& path);
  static Result<TensorFile> open(std::unique_ptr<ByteSource> source, std::string name);

  /// In the order of their bytes.
  [[nodiscard]] const std::vector<TensorEntry>& entries() const { return entries_; }
  [[nodiscard]] const TensorEntry* find(std::string_view name) const;
  Result<std::vector<std::byte>> bytes(const TensorEntry& entry);
  /// Widened to double.
  Result<Tensor> read(const TensorEntry& entry);

 private:
  TensorFile(std::unique_ptr<ByteSource> source, std::string name)
      : source_(std::move(source)), name_(std::move(name)) {}
  Result<void> parse();
  Result<void> parse_header(const std::string& header, std::uint64_t data_offset,
                            std::uint64_t data_bytes);
  Result<void> digest_all();
  [[nodiscard]] Error malformed(const std::string& what) const;

  std::unique_ptr<ByteSource> source_;
  std::string name_;
  std::vector<TensorEntry> entries_;
};

}  // namespace lockstep::history
