#include "checkers/allowed.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <sstream>

namespace lockstep::checkers {
namespace {

/// "LS401@train.py:build no seed is shared, by design"
std::optional<Allowed> parsed(const std::string& line) {
  const std::size_t end = std::min(line.find(' '), line.size());
  const std::size_t at = line.find('@');
  const std::size_t colon = line.rfind(':', end);
  if (at == std::string::npos || colon == std::string::npos || colon < at || colon > end)
    return std::nullopt;
  Allowed allowed{.code = line.substr(0, at),
                  .file = line.substr(at + 1, colon - at - 1),
                  .function = line.substr(colon + 1, end - colon - 1),
                  .reason = end < line.size() ? line.substr(end + 1) : ""};
  const bool whole = code_of(allowed.code) && !allowed.file.empty() && !allowed.function.empty();
  return whole ? std::optional(std::move(allowed)) : std::nullopt;
}

bool is_file(const std::string& path, const std::string& wanted) {
  return path == wanted || path.ends_with("/" + wanted);
}

bool is_about(const Allowed& allowed, const Finding& finding) {
  return text_of(finding.code) == allowed.code &&
         std::any_of(finding.sites.begin(), finding.sites.end(), [&](const SiteRef& site) {
           return is_file(site.file, allowed.file) && site.function == allowed.function;
         });
}

}  // namespace

std::vector<Allowed> allowed_in(const Plan& plan) {
  std::vector<Allowed> all;
  const auto told = plan.options.find("allow");
  std::istringstream lines(told == plan.options.end() ? "" : told->second);
  for (std::string line; std::getline(lines, line);) {
    if (auto allowed = parsed(line))
      all.push_back(std::move(*allowed));
  }
  return all;
}

void allow(const std::vector<Allowed>& allowed, Verdict& verdict) {
  bool any = false;
  for (Finding& finding : verdict.findings) {
    const auto rule = std::find_if(allowed.begin(), allowed.end(),
                                   [&](const Allowed& each) { return is_about(each, finding); });
    if (rule == allowed.end())
      continue;
    any = true;
    finding.severity = Severity::kNote;
    finding.headline +=
        fmt::format(" (allowed{}{})", rule->reason.empty() ? "" : ": ", rule->reason);
  }
  const bool wrong =
      std::any_of(verdict.findings.begin(), verdict.findings.end(),
                  [](const Finding& finding) { return finding.severity == Severity::kError; });
  if (any && !wrong && verdict.outcome == Outcome::kFail)
    verdict.outcome = Outcome::kPass;
}

}  // namespace lockstep::checkers
