#include "harness/history/dump_reader.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

namespace lockstep::history {
namespace {

constexpr int kOldestMinor = 4;
constexpr int kNewestMinor = 10;

/// Pickle, JSON, or '\0'.
char format_of(ByteSource& source) {
  constexpr char kProto = '\x80';
  std::array<std::byte, 64> first{};
  const std::size_t count = source.read(0, first);
  for (std::size_t i = 0; i < count; ++i) {
    const char c = static_cast<char>(first[i]);
    if ((c == kProto && i == 0) || c == '{')
      return c;
    if (std::string_view(" \t\r\n").find(c) == std::string_view::npos)
      break;
  }
  return '\0';
}

bool is_known(std::string_view version) {
  if (version.substr(0, 2) != "2.")
    return false;
  int minor = -1;
  const char* const end = version.data() + version.size();
  const auto [at, error] = std::from_chars(version.data() + 2, end, minor);
  return error == std::errc() && at == end && minor >= kOldestMinor && minor <= kNewestMinor;
}

}  // namespace

Error malformed_dump(const std::string& name, const std::string& what) {
  return {Error::Kind::kMalformedHistory, fmt::format("{}: {}", name, what),
          "give dumps as PyTorch's Flight Recorder wrote them, pickles or JSON"};
}

Result<DumpHead> checked_head(const DumpWords& words, DumpValue root, const std::string& name) {
  DumpHead head = words.head(root);
  if (head.version.empty())
    return malformed_dump(name, "it is no dump of a Flight Recorder: it has no version");
  if (!is_known(head.version))
    return malformed_dump(name,
                          fmt::format("version {} of the dump format, need 2.{} to 2.{}",
                                      head.version.substr(0, 32), kOldestMinor, kNewestMinor));
  return head;
}

void take_the_rest(const DumpValues& values, const DumpWords& words, DumpValue root,
                   const DumpEntries& entries) {
  for (const DumpValue entry : values.items_of(words.at(root, "entries"))) {
    if (entry.kind == DumpValue::Kind::kMap)
      entries(words.entry(entry), words);
  }
}

bool looks_like_dump(ByteSource& source) { return format_of(source) != '\0'; }

Result<DumpHead> read_dump(ByteSource& source, const std::string& name,
                           const DumpEntries& entries) {
  switch (format_of(source)) {
    case '{':
      return read_json_dump(source, name, entries);
    case '\0':
      return malformed_dump(name,
                            source.size() == 0 ? "it is empty" : "it is neither a pickle nor JSON");
    default:
      return read_pickled_dump(source, name, entries);
  }
}

}  // namespace lockstep::history
