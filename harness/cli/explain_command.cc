#include <fmt/format.h>

#include "harness/cli/commands.h"
#include "harness/verdict/pages.h"

namespace lockstep::cli {

int run_explain_command(const std::string& code) {
  if (code.empty()) {
    for (const CodeRow& row : kCodes) {
      if (row.code != Code::kNone)
        fmt::print("{}  {:<26}{}\n", row.text, row.slug, row.title);
    }
    return 0;
  }
  const CodeRow* const row = find_row(code);
  if (row == nullptr) {
    std::string codes;
    for (const CodeRow& known : kCodes)
      codes += fmt::format("{}{}", codes.empty() ? "" : " ", known.text);
    return report_error(
        {Error::Kind::kUsage, fmt::format("no code {}", code), "there are: " + codes});
  }
  fmt::print("{}", plain_text(page_of(row->text)));
  return 0;
}

}  // namespace lockstep::cli
