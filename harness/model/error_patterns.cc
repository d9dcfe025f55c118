#include "harness/model/error_patterns.h"

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

struct Row {
  std::string_view text{};
  std::uint16_t means{};
};

template <class... Meanings>
constexpr Row row(std::string_view text, Meanings... means) {
  return {text, static_cast<std::uint16_t>((static_cast<unsigned>(means) | ...))};
}

#define ROW(...) row(__VA_ARGS__),
constexpr std::array kRows{
#include "harness/model/error_patterns.inc"
};
#undef ROW

}  // namespace

std::size_t where_it_says(std::string_view text, Says what) {
  std::size_t first = std::string_view::npos;
  for (const Row& row : kRows) {
    if ((row.means & static_cast<std::uint16_t>(what)) != 0)
      first = std::min(first, text.find(row.text));
  }
  return first;
}

bool says(std::string_view text, Says what) {
  return where_it_says(text, what) != std::string_view::npos;
}

bool speaks_of_its_arguments(std::string_view type) {
  return type == "ValueError" || type == "TypeError" || type == "IndexError" || type == "KeyError";
}

Saying without_numbers(std::string_view text, bool of_ranks_only) {
  Saying saying;
  for (std::size_t at = 0; at < text.size();) {
    const bool address = text.substr(at, 2) == "0x";
    const std::size_t end = std::min(address ? text.find_first_not_of("0123456789abcdef", at + 2)
                                             : text.find_first_not_of("0123456789", at),
                                     text.size());
    const bool of_rank = at >= 4 && text.substr(at - 4, 4) == "ank ";
    if (end == at) {
      saying.text += text[at++];
    } else if (of_ranks_only && !of_rank) {
      saying.text += text.substr(at, end - at);
      at = end;
    } else {
      saying.text += '#';
      ++saying.numbers;
      at = end;
    }
  }
  return saying;
}

}  // namespace lockstep
