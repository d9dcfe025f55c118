#include "harness/report/baseline.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/verdict/exit_codes.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

/// The culprit's line, or else the first.
const SiteRef* place_of(const std::vector<SiteRef>& sites) {
  const auto culprit = std::find_if(sites.begin(), sites.end(),
                                    [](const SiteRef& site) { return site.role == "culprit"; });
  return culprit != sites.end() ? &*culprit : sites.empty() ? nullptr : &sites.front();
}

/// File and folder: where the repository lies may differ.
std::string_view end_of(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos || slash == 0)
    return path;
  const std::size_t before = path.rfind('/', slash - 1);
  return before == std::string_view::npos ? path : path.substr(before + 1);
}

bool same_file(std::string_view a, std::string_view b) {
  const std::string_view x = end_of(a);
  const std::string_view y = end_of(b);
  return x == y || x.ends_with("/" + std::string(y)) || y.ends_with("/" + std::string(x));
}

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  const std::size_t end = text.find_last_not_of(" \t\r");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

std::string text_in(const Json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_string() ? at->get<std::string>() : "";
}

KnownFinding known_of(const Json& found) {
  KnownFinding known{.code = text_in(found, "code"),
                     .op = text_in(found, "op"),
                     .case_id = text_in(found, "case"),
                     .headline = text_in(found, "headline")};
  for (const Json& name : found.value("names", Json::array())) {
    if (name.is_string())
      known.names.push_back(name.get<std::string>());
  }
  std::vector<SiteRef> sites;
  std::vector<std::string> texts;
  for (const Json& site : found.value("sites", Json::array())) {
    if (!site.is_object())
      continue;
    const auto line = site.find("line");
    sites.push_back({.role = text_in(site, "role"),
                     .file = text_in(site, "file"),
                     .line = line != site.end() && line->is_number_integer() ? line->get<int>() : 0,
                     .function = text_in(site, "function")});
    texts.push_back(text_in(site, "text"));
  }
  if (const SiteRef* const place = place_of(sites)) {
    known.site = *place;
    known.text = texts[static_cast<std::size_t>(place - sites.data())];
  }
  return known;
}

bool is_same(const KnownFinding& known, const Finding& finding, const std::string& case_id,
             const LineText& line_text) {
  if (known.code != text_of(finding.code) || known.op != finding.op || known.case_id != case_id)
    return false;
  const SiteRef* const place = place_of(finding.sites);
  if (place == nullptr || known.site.file.empty())
    return place == nullptr && known.site.file.empty() && known.names == finding.names;
  if (!same_file(known.site.file, place->file) || known.site.function != place->function)
    return false;
  const std::string text = trimmed(line_text(*place));
  return known.text.empty() || text.empty() ? known.site.line == place->line
                                            : trimmed(known.text) == text;
}

bool may_be_known(const Finding& finding, bool got_over) {
  switch (family_of(finding.code)) {
    case Family::kMismatch:
      return got_over;
    case Family::kProcess:
    case Family::kLeftBehind:
    case Family::kData:
      return true;
    default:
      return false;
  }
}

bool has_error(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.severity == Severity::kError; });
}

/// Of a job that failed and has no error left.
void conclude_job(Report& report, const std::vector<std::string>& required) {
  const auto undecided =
      std::find_if(report.checks.begin(), report.checks.end(), [&](const Verdict& check) {
        return check.outcome == Outcome::kUndecided &&
               std::find(required.begin(), required.end(), check.name) != required.end();
      });
  const std::int32_t ended = report.program_exit.value_or(0);
  const bool decided = ended == 0 && undecided == report.checks.end();
  report.outcome = decided ? Outcome::kPass : Outcome::kUndecided;
  report.exit_status = status_of(decided ? ExitCode::kNothingFound : ExitCode::kUndecided);
  if (ended != 0)
    report.reason =
        fmt::format("the program ended with status {}, and no baseline hides how it ends", ended);
  else if (!decided)
    report.reason = fmt::format("{}: {}", undecided->name, undecided->reason);
}

void conclude_suite(Report& report) {
  const auto any = [&](Outcome outcome) {
    return std::any_of(report.cases.begin(), report.cases.end(), [&](const CaseReport& result) {
      return result.outcome == outcome && (outcome != Outcome::kUndecided || result.required);
    });
  };
  if (any(Outcome::kFail))
    return;
  const bool undecided = any(Outcome::kUndecided);
  report.outcome = undecided ? Outcome::kUndecided : Outcome::kPass;
  report.exit_status = status_of(undecided ? ExitCode::kUndecided : ExitCode::kNothingFound);
}

class Use {
 public:
  Use(const std::vector<KnownFinding>& known, const LineText& line_text)
      : known_(known), seen_(known.size()), line_text_(line_text) {}

  /// How many became notes.
  std::size_t on(std::vector<Finding>& findings, const std::string& case_id, bool got_over) {
    std::size_t notes = 0;
    for (Finding& finding : findings) {
      bool is_known = false;
      for (std::size_t i = 0; i < known_.size(); ++i) {
        if (!is_same(known_[i], finding, case_id, line_text_))
          continue;
        seen_[i] = true;
        is_known = true;
      }
      if (!is_known || finding.severity != Severity::kError || !may_be_known(finding, got_over))
        continue;
      finding.severity = Severity::kNote;
      finding.headline += " (known: in the baseline)";
      ++notes;
    }
    return notes;
  }

  [[nodiscard]] std::vector<std::string> gone() const {
    std::vector<std::string> gone;
    for (std::size_t i = 0; i < known_.size(); ++i) {
      if (!seen_[i])
        gone.push_back(fmt::format("{}: {}", known_[i].code, known_[i].headline));
    }
    return gone;
  }

 private:
  const std::vector<KnownFinding>& known_;
  std::vector<bool> seen_;
  const LineText& line_text_;
};

}  // namespace

Result<std::vector<KnownFinding>> parse_baseline(std::string_view report_json,
                                                 const std::string& path) {
  const Json document = Json::parse(report_json, nullptr, false);
  const std::string format = document.is_object() ? text_in(document, "format") : "";
  // Both have what is read here.
  if ((format != "lockstep-report/1" && format != "lockstep-report/2") ||
      !document.contains("findings") || !document["findings"].is_array())
    return Error{Error::Kind::kUsage,
                 fmt::format("{} is no baseline: need a report of format lockstep-report/2", path),
                 "name the report.json of an earlier run"};
  std::vector<KnownFinding> known;
  for (const Json& found : document["findings"]) {
    if (found.is_object())
      known.push_back(known_of(found));
  }
  return known;
}

BaselineUse apply_baseline(Report& report, const std::vector<KnownFinding>& known,
                           const LineText& line_text, const std::vector<std::string>& required) {
  Use use(known, line_text);
  BaselineUse result;
  const bool got_over = report.program_exit == 0;
  result.known = use.on(report.findings, "", got_over);
  bool case_changed = false;
  for (CaseReport& checked : report.cases) {
    const std::size_t notes = use.on(checked.findings, checked.id, false);
    result.known += notes;
    if (notes == 0 || has_error(checked.findings) || !checked.mutants.empty() ||
        checked.outcome != Outcome::kFail)
      continue;
    checked.outcome = Outcome::kPass;
    case_changed = true;
  }
  result.gone = use.gone();
  if (report.outcome == Outcome::kFail && !has_error(report.findings)) {
    if (report.cases.empty() && result.known > 0)
      conclude_job(report, required);
    else if (case_changed)
      conclude_suite(report);
  }
  return result;
}

}  // namespace lockstep
