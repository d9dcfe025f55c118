#include "harness/session/notices.h"

#include <fmt/format.h>

#include <utility>

#include "harness/report/pieces.h"

namespace lockstep::session {

Notices::Notices(const Clock& clock, Print print)
    : clock_(clock), print_(std::move(print)), begun_(clock()) {}

void Notices::tell(std::string_view word, std::string_view text) const {
  const double elapsed_s = std::chrono::duration<double>(clock_() - begun_).count();
  print_(
      fmt::format("{:>{}}  {}  {}\n", word, report::kWordWidth, report::duration(elapsed_s), text));
}

void Notices::detail(std::string_view text) const {
  print_(fmt::format("{:>{}}{}\n", "", report::kDetailIndent, text));
}

}  // namespace lockstep::session
