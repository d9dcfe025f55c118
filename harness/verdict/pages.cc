#include "harness/verdict/pages.h"

#include <algorithm>
#include <cctype>
#include <span>

namespace lockstep {
namespace {

bool same_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) ==
           std::tolower(static_cast<unsigned char>(y));
  });
}

/// "[words](address)" as "words".
std::string without_addresses(std::string_view line) {
  std::string text;
  while (true) {
    const std::size_t middle = line.find("](");
    const std::size_t begin = middle == line.npos ? line.npos : line.rfind('[', middle);
    const std::size_t end = begin == line.npos ? line.npos : line.find(')', middle);
    if (end == line.npos)
      return text.append(line);
    text.append(line.substr(0, begin)).append(line.substr(begin + 1, middle - begin - 1));
    line = line.substr(end + 1);
  }
}

}  // namespace

std::string_view page_of(std::string_view code) {
  for (const Page& page : std::span(kPages, kPageCount)) {
    if (page.code == code)
      return page.text;
  }
  return {};
}

std::string plain_text(std::string_view page) {
  std::string text;
  bool in_code = false, after_heading = false;
  while (!page.empty()) {
    const std::size_t end = std::min(page.find('\n'), page.size());
    const std::string_view line = page.substr(0, end);
    page = page.substr(std::min(end + 1, page.size()));
    const bool leave_out = (line.empty() && after_heading) ||  // below a heading
                           line.starts_with("```") || (!in_code && line.starts_with("<!--"));
    if (line.starts_with("```"))
      in_code = !in_code;
    if (leave_out)
      continue;
    const std::size_t marks = in_code ? 0 : line.find_first_not_of('#');
    const bool heading = marks != 0 && marks != line.npos;
    after_heading = heading && marks > 1;
    if (heading)
      text.append(line.substr(std::min(marks + 1, line.size())));
    else if (!line.empty())
      text.append(in_code ? "    " : "  ").append(in_code ? line : without_addresses(line));
    text += '\n';
  }
  return text;
}

const CodeRow* find_row(std::string_view code_or_slug) {
  if (code_or_slug.empty())
    return nullptr;
  for (const CodeRow& row : kCodes) {
    if (same_ignoring_case(row.text, code_or_slug) || same_ignoring_case(row.slug, code_or_slug))
      return &row;
  }
  return nullptr;
}

}  // namespace lockstep
