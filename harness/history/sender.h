// Who of the job sent a process a signal.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

struct Sender {
  std::int32_t pid{};
  std::string name{};  ///< "torchrun".
  friend bool operator==(const Sender&, const Sender&) = default;
};

/// "pid 4711 (torchrun)", as the shim writes it and the journal keeps it.
inline std::string text_of(const Sender& sender) {
  return "pid " + std::to_string(sender.pid) + " (" + sender.name + ")";
}

/// None where it is no such text.
inline std::optional<Sender> sender_of(std::string_view text) {
  constexpr std::string_view kBegin = "pid ", kName = " (";
  Sender sender;
  const std::size_t name = text.find(kName);
  if (text.substr(0, kBegin.size()) != kBegin || name == std::string_view::npos ||
      text.back() != ')')
    return std::nullopt;
  const auto [end, error] =
      std::from_chars(text.data() + kBegin.size(), text.data() + name, sender.pid);
  if (error != std::errc{} || end != text.data() + name)
    return std::nullopt;
  sender.name = text.substr(name + kName.size(), text.size() - name - kName.size() - 1);
  return sender;
}

}  // namespace lockstep
