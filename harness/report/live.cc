#include "harness/report/live.h"

#include <fmt/format.h>

#include <utility>

#include "harness/report/pieces.h"
#include "harness/report/text.h"

namespace lockstep {
namespace {

constexpr double kSilence_s = 60;  // off a terminal
constexpr std::string_view kEraseLine = "\r\x1b[K";

}  // namespace

LiveProgress::LiveProgress(Sink sink, HumanOptions options, bool rewrite, std::size_t case_count)
    : sink_(std::move(sink)),
      options_(std::move(options)),
      rewrite_(rewrite),
      case_count_(case_count) {}

std::string LiveProgress::running_line(std::string_view id, double elapsed_s) const {
  const std::size_t digits = fmt::formatted_size("{}", case_count_);
  std::string line = fmt::format("{:>{}}  {} ({:>{}}/{}) {}", "RUNNING", report::kWordWidth,
                                 report::duration(elapsed_s), finished_ + 1, digits, case_count_,
                                 report::printable(id, options_.unicode));
  if (failed_ > 0)
    line += fmt::format(", {} failed", failed_);
  if (undecided_ > 0)
    line += fmt::format(", {} undecided", undecided_);
  return line;
}

void LiveProgress::running(std::string_view id, double elapsed_s) {
  const std::string line = running_line(id, elapsed_s);
  if (rewrite_) {
    // One column stays free: a full line would make the terminal wrap.
    sink_(std::string(kEraseLine) + report::truncated(line, options_.width - 1, options_.unicode));
    shown_ = true;
  } else if (elapsed_s - last_written_s_ >= kSilence_s) {
    sink_(line + "\n");
    last_written_s_ = elapsed_s;
  }
}

void LiveProgress::finished(const CaseReport& result, double elapsed_s) {
  pause();
  ++finished_;
  failed_ += result.outcome == Outcome::kFail ? 1 : 0;
  undecided_ += result.outcome == Outcome::kUndecided ? 1 : 0;
  sink_(human_case(result, finished_, case_count_, options_));
  last_written_s_ = elapsed_s;
}

void LiveProgress::pause() {
  if (shown_)
    sink_(kEraseLine);
  shown_ = false;
}

}  // namespace lockstep
