// As much of the wire format of protocol buffers as a trace needs
// (https://protobuf.dev/programming-guides/encoding).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::exports {

class Message {
 public:
  Message& number(std::uint32_t field, std::uint64_t value) {
    varint(field << 3U);
    varint(value);
    return *this;
  }
  Message& fixed(std::uint32_t field, std::uint64_t value) {
    varint((field << 3U) | 1U);
    for (unsigned shift = 0; shift < 64; shift += 8)
      bytes_ += static_cast<char>((value >> shift) & 0xffU);
    return *this;
  }
  Message& text(std::uint32_t field, std::string_view value) {
    varint((field << 3U) | 2U);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& message(std::uint32_t field, const Message& value) { return text(field, value.bytes_); }

  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  void varint(std::uint64_t value) {
    for (; value >= 0x80U; value >>= 7U)
      bytes_ += static_cast<char>((value & 0x7fU) | 0x80U);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_{};
};

}  // namespace lockstep::exports
