#include "harness/history/tensor_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "harness/base/unique_fd.h"

namespace lockstep::history {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kHeaderBytesMax = 16U << 20;
constexpr std::uint64_t kTensorBytesMax = 4ULL << 30;
constexpr std::size_t kDimensionsMax = 64;

constexpr std::uint64_t kFnvBasis = 0xcbf29ce484222325ULL;

std::uint64_t fnv(std::uint64_t hash, std::span<const std::byte> bytes) {
  for (const std::byte byte : bytes)
    hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3ULL;
  return hash;
}

std::string hex(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

/// Bytes of a tensor; none if the shape is negative or too large.
std::optional<std::uint64_t> size_of(std::string_view dtype, std::span<const std::int64_t> shape) {
  std::uint64_t size = element_bytes(dtype);
  bool empty = false;
  for (const std::int64_t extent : shape) {
    if (extent < 0)
      return std::nullopt;
    empty = empty || extent == 0;
    if (extent != 0 && __builtin_mul_overflow(size, static_cast<std::uint64_t>(extent), &size))
      return std::nullopt;
  }
  if (size > kTensorBytesMax)
    return std::nullopt;
  return empty ? 0 : size;
}

Error io_error(const std::string& what, const std::string& path, int error) {
  return {Error::Kind::kIo, fmt::format("cannot {} {}: {}", what, path, std::strerror(error)),
          error == ENOSPC ? "free some space, or choose another place with --run-dir" : ""};
}

/// Writes all, or says why not.
int write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(fd, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR)
      continue;
    if (wrote <= 0)
      return wrote < 0 ? errno : ENOSPC;
    bytes = bytes.subspan(static_cast<std::size_t>(wrote));
  }
  return 0;
}

}  // namespace

std::size_t element_bytes(std::string_view dtype) {
  constexpr std::pair<std::string_view, std::size_t> kTypes[] = {
      {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},
      {"I32", 4}, {"I16", 2}, {"I8", 1},  {"U8", 1},   {"BOOL", 1}};
  for (const auto& [name, bytes] : kTypes) {
    if (name == dtype)
      return bytes;
  }
  return 0;
}

std::string digest_of(std::span<const std::byte> bytes) { return hex(fnv(kFnvBasis, bytes)); }

Result<void> write_tensors(const std::string& path, std::span<const TensorView> tensors) {
  Json header = Json::object();
  std::uint64_t offset = 0;
  for (const TensorView& tensor : tensors) {
    const auto size = size_of(tensor.dtype, tensor.shape);
    if (element_bytes(tensor.dtype) == 0 || !size || *size != tensor.bytes.size() ||
        header.contains(tensor.name))
      return Error{Error::Kind::kUsage,
                   fmt::format("cannot write tensor {} to {}: {} bytes do not fit its type {} and "
                               "shape, or its name "
                               "is used twice",
                               tensor.name, path, tensor.bytes.size(), tensor.dtype),
                   ""};
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + *size}}};
    offset += *size;
  }
  std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.append((8 - text.size() % 8) % 8, ' ');
  std::uint64_t length = text.size();
  text.insert(0, reinterpret_cast<const char*>(&length), sizeof length);

  const std::string temporary = fmt::format("{}.tmp-{}", path, getpid());
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd)
    return io_error("create", temporary, errno);
  int error = write_all(fd.get(), std::as_bytes(std::span(text)));
  for (std::size_t i = 0; i < tensors.size() && error == 0; ++i)
    error = write_all(fd.get(), tensors[i].bytes);
  if (error == 0 && ::rename(temporary.c_str(), path.c_str()) != 0)
    error = errno;
  if (error == 0)
    return {};
  ::unlink(temporary.c_str());
  return io_error("write", path, error);
}

Result<void> write_tensors(const std::string& path, const std::vector<TensorData>& tensors) {
  std::vector<TensorView> views;
  views.reserve(tensors.size());
  for (const TensorData& tensor : tensors)
    views.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.bytes});
  return write_tensors(path, std::span<const TensorView>(views));
}

Error TensorFile::malformed(const std::string& what) const {
  return {Error::Kind::kMalformedHistory, fmt::format("{} is not a tensor file: {}", name_, what),
          ""};
}

Result<TensorFile> TensorFile::open(const std::string& path) {
  auto source = FileSource::open(path);
  if (!source)
    return source.error();
  return open(std::move(*source), path);
}

Result<TensorFile> TensorFile::open(std::unique_ptr<ByteSource> source, std::string name) {
  TensorFile file(std::move(source), std::move(name));
  if (auto parsed = file.parse(); !parsed)
    return parsed.error();
  return file;
}

Result<void> TensorFile::parse() {
  std::uint64_t length = 0;
  const std::uint64_t size = source_->size();
  if (source_->read(0, std::as_writable_bytes(std::span(&length, 1))) != sizeof length)
    return malformed(fmt::format("it has {} bytes", size));
  if (length > kHeaderBytesMax || size < sizeof length || length > size - sizeof length)
    return malformed(fmt::format("its header claims {} bytes, the file has {}", length, size));
  std::string header(length, '\0');
  if (source_->read(sizeof length, std::as_writable_bytes(std::span(header))) != length)
    return malformed("its header is cut off");
  if (auto parsed = parse_header(header, sizeof length + length, size - sizeof length - length);
      !parsed)
    return parsed;
  return digest_all();
}

Result<void> TensorFile::parse_header(const std::string& text, std::uint64_t data_offset,
                                      std::uint64_t data_bytes) {
  const Json header = Json::parse(text, nullptr, false);
  if (!header.is_object())
    return malformed("its header is not a JSON object");
  for (const auto& item : header.items()) {
    const std::string& key = item.key();
    const Json& value = item.value();
    if (key == "__metadata__")
      continue;
    const auto dtype = value.find("dtype");
    const auto shape = value.find("shape");
    const auto range = value.find("data_offsets");
    const auto is_list = [&](auto at, std::size_t size_max) {
      return at != value.end() && at->is_array() && at->size() <= size_max &&
             std::all_of(at->begin(), at->end(),
                         [](const Json& each) { return each.is_number_unsigned(); });
    };
    if (!value.is_object() || dtype == value.end() || !dtype->is_string() ||
        !is_list(shape, kDimensionsMax) || !is_list(range, 2) || range->size() != 2)
      return malformed(fmt::format("tensor {} lacks dtype, shape or data_offsets", key));
    TensorEntry entry;
    entry.name = key;
    entry.dtype = dtype->get<std::string>();
    for (const Json& extent : *shape)
      entry.shape.push_back(extent.get<std::int64_t>());
    const auto begin = (*range)[0].get<std::uint64_t>(), end = (*range)[1].get<std::uint64_t>();
    const auto bytes = size_of(entry.dtype, entry.shape);
    if (element_bytes(entry.dtype) == 0)
      return malformed(fmt::format("tensor {} has the unknown type {}", key, entry.dtype));
    if (begin > end || end > data_bytes || !bytes || end - begin != *bytes)
      return malformed(fmt::format("tensor {} does not lie where its header says", key));
    entry.offset = data_offset + begin;
    entry.size_bytes = end - begin;
    entries_.push_back(std::move(entry));
  }
  std::sort(entries_.begin(), entries_.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.size_bytes < b.size_bytes;
  });
  std::uint64_t next =
      data_offset;  // As the format demands: no holes, no overlaps, nothing behind.
  for (const TensorEntry& entry : entries_) {
    if (entry.offset != next)
      return malformed(fmt::format("there is a hole or an overlap before tensor {}", entry.name));
    next += entry.size_bytes;
  }
  if (next != data_offset + data_bytes)
    return malformed("there are bytes that belong to no tensor");
  return {};
}

Result<void> TensorFile::digest_all() {
  std::vector<std::byte> chunk;
  for (TensorEntry& entry : entries_) {
    std::uint64_t hash = kFnvBasis;
    for (std::uint64_t done = 0; done < entry.size_bytes; done += chunk.size()) {
      chunk.resize(std::min<std::uint64_t>(entry.size_bytes - done, 1U << 20));
      if (source_->read(entry.offset + done, chunk) != chunk.size())
        return malformed(fmt::format("tensor {} is cut off", entry.name));
      hash = fnv(hash, chunk);
    }
    entry.digest = hex(hash);
  }
  return {};
}

const TensorEntry* TensorFile::find(std::string_view name) const {
  for (const TensorEntry& entry : entries_) {
    if (entry.name == name)
      return &entry;
  }
  return nullptr;
}

Result<std::vector<std::byte>> TensorFile::bytes(const TensorEntry& entry) {
  std::vector<std::byte> bytes(std::min<std::uint64_t>(entry.size_bytes, source_->size()));
  if (bytes.size() != entry.size_bytes || source_->read(entry.offset, bytes) != bytes.size())
    return malformed(fmt::format("tensor {} is cut off", entry.name));
  return bytes;
}

}  // namespace lockstep::history
