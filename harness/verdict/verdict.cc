#include "harness/verdict/verdict.h"

namespace lockstep {

std::string_view name_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kUndecided:
      return "undecided";
    case Outcome::kPass:
      return "pass";
    case Outcome::kFail:
      return "fail";
    case Outcome::kSkipped:
      return "skipped";
  }
  return "undecided";
}

std::string_view name_of(Severity severity) {
  switch (severity) {
    case Severity::kError:
      return "error";
    case Severity::kWarning:
      return "warning";
    case Severity::kNote:
      return "note";
  }
  return "error";
}

std::string_view name_of(Confidence confidence) {
  switch (confidence) {
    case Confidence::kUnknown:
      return "unknown";
    case Confidence::kLikely:
      return "likely";
    case Confidence::kCertain:
      return "certain";
  }
  return "unknown";
}

}  // namespace lockstep
