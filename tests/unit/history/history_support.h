// Helpers of the history tests: a directory that goes away, a writer that is closed, a file read
// back.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "harness/history/reader.h"
#include "harness/history/writer.h"

namespace lockstep::history {

class TempDir {
 public:
  TempDir() {
    std::string form = (std::filesystem::temp_directory_path() / "lockstep-test-XXXXXX").string();
    path_ = ::mkdtemp(form.data()) == nullptr ? "" : form;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline std::unique_ptr<Writer> open_writer(const TempDir& place,
                                           std::uint64_t file_bytes = WriterFile::kFileBytesMin) {
  WriterOptions options;
  options.directory = place.path().c_str();
  options.file_bytes = file_bytes;
  options.rank = 1;
  options.world_size = 4;
  options.torch_version = "2.15.0";
  options.capabilities = kSeesCompletion | kSeesSites;
  return std::unique_ptr<Writer>(Writer::open(options));
}

/// Slots of the ring as it is now.
inline std::uint64_t ring_slots(const Writer& writer) {
  FileHeader header{};
  auto source = FileSource::open(writer.path());
  EXPECT_TRUE(source &&
              (*source)->read(0, std::as_writable_bytes(std::span(&header, 1))) == sizeof header);
  return header.reserved_slots;
}

inline GroupHandle define(Writer& writer, const char* name, bool from_creation = true) {
  static const std::int32_t ranks[] = {0, 1, 2, 3};
  GroupInfo info;
  info.name = name;
  info.size = 4;
  info.my_rank = 1;
  info.ranks = ranks;
  info.rank_count = 4;
  info.from_creation = from_creation;
  return writer.define_group(info);
}

inline Issue all_reduce(std::uint64_t numel) {
  Issue call;
  call.op = Op::kAllReduce;
  call.dtype = DType::kFloat32;
  call.reduce_op = ReduceOp::kSum;
  call.numel_in = call.numel_out = numel;
  return call;
}

inline Issue send_to(std::int32_t peer, std::int32_t tag = 0) {
  Issue call;
  call.op = Op::kSend;
  call.dtype = DType::kFloat32;
  call.root = peer;
  call.tag = tag;
  return call;
}

inline ProcessFile read_back(const std::string& path) {
  auto source = FileSource::open(path);
  EXPECT_TRUE(source.has_value());
  if (!source)
    return {};
  auto file = read_process(std::move(*source), "test.lsh");
  EXPECT_TRUE(file.has_value()) << (file ? "" : file.error().what);
  return file ? std::move(*file) : ProcessFile{};
}

inline std::vector<std::byte> bytes_of_file(const std::string& path) {
  auto text = read_whole(path, 1U << 30);
  EXPECT_TRUE(text.has_value());
  std::vector<std::byte> bytes;
  if (text)
    bytes.assign(reinterpret_cast<const std::byte*>(text->data()),
                 reinterpret_cast<const std::byte*>(text->data()) + text->size());
  return bytes;
}

inline Result<ProcessFile> read_bytes(std::span<const std::byte> bytes) {
  return read_process(std::make_unique<MemorySource>(bytes), "test.lsh");
}

}  // namespace lockstep::history
