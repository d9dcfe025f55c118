// libFuzzer: a process file that is being written while it is read. Between any two reads of the
// reader the file is changed as the input says: a word of the header's counters or of an area, or
// its length.
//
// Input: number of changes (1 byte), that many changes (11 bytes each: where, what, kind), then a
// file.
#include <cstdint>

#include "tests/fuzz/fuzz_input.h"

namespace lockstep::history {
namespace {

#pragma pack(push, 1)
struct Change {
  std::uint16_t where;
  std::uint64_t what;
  std::uint8_t kind;
};
#pragma pack(pop)

/// A file that changes under its reader.
class MovingSource final : public ByteSource {
 public:
  MovingSource(std::vector<std::byte> file, std::vector<Change> changes)
      : file_(std::move(file)), visible_(file_.size()), changes_(std::move(changes)) {}

  std::uint64_t size() override { return visible_; }
  std::size_t read(std::uint64_t offset, std::span<std::byte> into) override {
    change();
    return MemorySource(std::span(file_).first(visible_)).read(offset, into);
  }

 private:
  void change() {
    if (next_ == changes_.size())
      return;
    const Change& now = changes_[next_++];
    std::size_t at = file_.size();
    if (now.kind % 4 == 0)
      at = offsetof(FileHeader, next_record) + now.where % kCountersBytes / 8 * 8;
    else if (now.kind % 4 == 1)
      at = sizeof(FileHeader) + std::size_t{now.where} * 8;
    else if (now.kind % 4 == 2)
      visible_ = std::min<std::size_t>(file_.size(), now.where);
    else
      visible_ = file_.size();
    if (at + sizeof now.what <= file_.size())
      std::memcpy(file_.data() + at, &now.what, sizeof now.what);
  }

  std::vector<std::byte> file_;
  std::size_t visible_;
  std::vector<Change> changes_;
  std::size_t next_{};
};

void follow(std::span<const std::byte> input) {
  const std::size_t count = std::min<std::size_t>(static_cast<std::size_t>(input[0]),
                                                  (input.size() - 1) / sizeof(Change));
  std::vector<Change> changes(count);
  if (count != 0)
    std::memcpy(changes.data(), input.data() + 1, count * sizeof(Change));
  ProcessReader reader(std::make_unique<MovingSource>(
                           expand(input.subspan(1 + count * sizeof(Change))), std::move(changes)),
                       "fuzz", 4);
  for (int i = 0; i < 6; ++i) {
    (void)reader.poll(false);
    (void)reader.read_head();
    require_sound(reader.process());
  }
  (void)reader.poll(true);
  require_sound(reader.process());
}

}  // namespace
}  // namespace lockstep::history

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 0)
    lockstep::history::follow(std::as_bytes(std::span(data, size)));
  return 0;
}
