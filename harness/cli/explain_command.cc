#include <fmt/format.h>

#include "harness/cli/commands.h"
#include "harness/verdict/catalogue.h"

namespace lockstep::cli {
namespace {

void print_section(const char* title, std::string_view lines) {
  fmt::print("\n{}\n", title);
  while (!lines.empty()) {
    const std::size_t end = lines.find('\n');
    fmt::print("  {}\n", lines.substr(0, end));
    lines = end == std::string_view::npos ? std::string_view() : lines.substr(end + 1);
  }
}

}  // namespace

int run_explain_command(const std::string& code) {
  const CatalogueEntry* entry = find_code(code);
  if (entry == nullptr) {
    std::string codes;
    for (const CatalogueEntry& known : catalogue())
      codes += fmt::format("{}{}", codes.empty() ? "" : " ", known.code);
    return report_error(
        {Error::Kind::kUsage, fmt::format("no code {}", code), "there are: " + codes});
  }
  fmt::print("{} ({}): {}\n", entry->code, entry->slug, entry->title);
  print_section("What it means", entry->meaning);
  print_section("Usual causes", entry->causes);
  print_section("What to look at", entry->look_at);
  return 0;
}

}  // namespace lockstep::cli
