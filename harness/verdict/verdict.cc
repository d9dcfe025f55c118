#include "harness/verdict/verdict.h"

#include <array>

namespace lockstep {
namespace {

std::string_view basename_of(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

}  // namespace

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

std::string_view name_of(EvidenceKind kind) {
  constexpr std::array<std::string_view, 11> kNames{"call",    "wait",  "end",      "exception",
                                                    "process", "group", "resource", "value",
                                                    "sample",  "rule",  "finding"};
  return kNames.at(static_cast<std::size_t>(kind));
}

std::string words(const RankSet& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", ranks.to_string());
}

RankSet as_set(const std::optional<Rank>& rank) { return rank ? RankSet{*rank} : RankSet{}; }

std::string at_site(const std::optional<SiteRef>& site) {
  return site ? fmt::format(" at {}:{}", basename_of(site->file), site->line) : "";
}

std::vector<std::string> texts_of(const std::vector<Evidence>& evidence) {
  std::vector<std::string> texts;
  for (const Evidence& line : evidence)
    texts.push_back(line.text);
  return texts;
}

}  // namespace lockstep
