#include "harness/model/coverage.h"

#include <fmt/format.h>

namespace lockstep {

std::string why_open(const Run& run) {
  if (run.live)
    return "the run goes on";
  return run.journal_complete ? "" : incomplete("the journal of the run is incomplete");
}

std::string incomplete(std::string_view what) { return lacking(Code::kHistoryIncomplete, what); }

std::string lacking(Code code, std::string_view what) {
  return fmt::format("{}: {}", text_of(code), what);
}

}  // namespace lockstep
