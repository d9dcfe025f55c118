#include "harness/report/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lockstep::report {
namespace {

constexpr std::size_t kRangesShownMax = 10;
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct CodePoint {
  char32_t value{};
  std::size_t length{};  ///< Bytes taken.
  bool valid{};
};

bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U; }

/// The code point at the start of a text that is not empty. What is not valid is one byte long.
CodePoint decode(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80)
    return {lead, 1, true};
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length)
    return {0, 1, false};
  char32_t value = lead & (0xFFU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if (!is_continuation(text[i]))
      return {0, 1, false};
    value = value << 6U | (static_cast<unsigned char>(text[i]) & 0x3FU);
  }
  constexpr char32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (value < smallest[length] || value > 0x10FFFF || surrogate)
    return {0, 1, false};
  return {value, length, true};
}

std::string_view ascii_for(char32_t value) {
  switch (value) {
    case 0x2264:
      return "<=";
    case 0x2265:
      return ">=";
    case 0x2026:
      return "...";
    case 0x00D7:
      return "x";
    case 0x00B5:
    case 0x03BC:
      return "u";
    case 0x2013:
    case 0x2014:
      return "-";
    case 0x2018:
    case 0x2019:
      return "'";
    case 0x201C:
    case 0x201D:
      return "\"";
    default:
      return "?";
  }
}

/// Where to break a line that is too long: at the last space that leaves at most `width` columns,
/// else at the first space there is.
std::size_t break_position(std::string_view line, std::size_t width) {
  std::size_t at = std::string_view::npos;
  std::size_t column = std::min(line.find_first_not_of(' '), line.size());
  for (std::size_t i = column; i < line.size(); ++i) {
    if (column > width && at != std::string_view::npos)
      break;
    if (line[i] == ' ')
      at = i;
    column += is_continuation(line[i]) ? 0 : 1;
  }
  return at;
}

void wrap_line(std::string_view line, std::size_t width, std::size_t hanging,
               std::vector<std::string>& out) {
  const std::size_t leading = std::min(line.find_first_not_of(' '), line.size());
  std::string indent;
  while (indent.size() + columns(line) > width) {
    const std::size_t at = break_position(line, width - std::min(width, indent.size()));
    if (at == std::string_view::npos || line.find_first_not_of(' ', at) == std::string_view::npos)
      break;
    out.push_back(indent + std::string(line.substr(0, line.find_last_not_of(' ', at) + 1)));
    line.remove_prefix(line.find_first_not_of(' ', at));
    indent.assign(leading + hanging, ' ');
  }
  out.push_back(indent + std::string(line));
}

}  // namespace

std::string clean(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint point = decode(text);
    const bool control = point.value < 0x20 || (point.value >= 0x7F && point.value < 0xA0);
    if (!point.valid || point.value == 0xFFFE || point.value == 0xFFFF)
      out += kReplacement;
    else if (point.value == '\t')
      out += ' ';
    else if (control && point.value != '\n')
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(point.value));
    else
      out += text.substr(0, point.length);
    text.remove_prefix(point.length);
  }
  return out;
}

std::string printable(std::string_view text, bool unicode) {
  std::string cleaned = clean(text);
  if (unicode)
    return cleaned;
  std::string out;
  for (std::string_view rest = cleaned; !rest.empty();) {
    const CodePoint point = decode(rest);
    out += point.length == 1 ? rest.substr(0, 1) : ascii_for(point.value);
    rest.remove_prefix(point.length);
  }
  return out;
}

std::size_t columns(std::string_view line) {
  return line.size() -
         static_cast<std::size_t>(std::count_if(line.begin(), line.end(), is_continuation));
}

std::string truncated(std::string_view line, std::size_t width, bool unicode) {
  if (columns(line) <= width)
    return std::string(line);
  const std::string_view sign = unicode ? "\xE2\x80\xA6" : "...";
  const std::size_t room = width - std::min(width, columns(sign));
  std::size_t bytes = 0;
  for (std::size_t column = 0; column < room; ++column)
    bytes += decode(line.substr(bytes)).length;
  return std::string(line.substr(0, bytes)) + std::string(sign);
}

std::vector<std::string> wrap(std::string_view text, std::size_t width, std::size_t hanging) {
  std::vector<std::string> lines;
  while (true) {
    const std::size_t end = text.find('\n');
    wrap_line(text.substr(0, end), width, hanging, lines);
    if (end == std::string_view::npos)
      return lines;
    text.remove_prefix(end + 1);
  }
}

std::string count_of(std::uint64_t count, std::string_view noun) {
  if (count == 1)
    return fmt::format("1 {}", noun);
  return fmt::format("{} {}{}", count, noun,
                     noun.ends_with("s") || noun.ends_with("ch") ? "es" : "s");
}

std::string describe(const RankSet& ranks, std::int32_t world_size) {
  if (ranks.empty())
    return "none";
  if (ranks.size() == 1)
    return fmt::format("rank {}", ranks.begin()->value);
  if (world_size > 0 && ranks.size() == static_cast<std::size_t>(world_size))
    return fmt::format("all {} ranks", world_size);
  RankSet shown;
  std::size_t ranges = 0;
  for (const Rank rank : ranks) {
    ranges += shown.contains(Rank{rank.value - 1}) ? 0 : 1;
    if (ranges > kRangesShownMax)
      break;
    shown.insert(rank);
  }
  const std::size_t more = ranks.size() - shown.size();
  return fmt::format("ranks {}{}", shown.to_string(),
                     more == 0 ? "" : fmt::format(" and {} more", more));
}

std::string number(double value) {
  // fmt shows the sign of a NaN, which is an accident of the processor.
  return std::isnan(value) ? "nan" : fmt::format("{:.3g}", value);
}

std::string shell_word(std::string_view word) {
  constexpr std::string_view safe =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (!word.empty() && word.find_first_not_of(safe) == std::string_view::npos)
    return std::string(word);
  std::string quoted = "'";
  for (const char c : word)
    quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace lockstep::report
