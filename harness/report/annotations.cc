#include "harness/report/annotations.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <vector>

#include "harness/base/version.h"
#include "harness/history/format.h"
#include "harness/report/pieces.h"
#include "harness/report/text.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
using report::PlacedFinding;

std::string dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

/// Null where the finding has none.
const SiteRef* place_of(const Finding& finding) {
  const auto culprit = std::find_if(finding.sites.begin(), finding.sites.end(),
                                    [](const SiteRef& site) { return site.role == "culprit"; });
  return culprit != finding.sites.end() ? &*culprit
         : finding.sites.empty()        ? nullptr
                                        : &finding.sites.front();
}

struct File {
  std::string name{};
  bool in_repository{};
};

File file_of(const SiteRef& site, const std::string& root) {
  const std::filesystem::path path(site.file);
  const std::filesystem::path relative = path.lexically_relative(root);
  const bool inside = path.is_relative() || (!relative.empty() && *relative.begin() != "..");
  return {path.is_relative() || !inside ? path.string() : relative.string(), inside};
}

std::string uri_of(std::string_view path) {
  std::string uri;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("/-_.~").find(c) != std::string_view::npos;
    uri += plain ? std::string(1, c) : fmt::format("%{:02X}", byte);
  }
  return uri;
}

std::string fingerprint_of(const Finding& finding, const std::string& root) {
  const SiteRef* const place = place_of(finding);
  const std::string text = fmt::format("{}\n{}\n{}\n{}", text_of(finding.code), finding.op,
                                       place == nullptr ? "" : file_of(*place, root).name,
                                       place == nullptr ? "" : place->function);
  return fmt::format("{:016x}", history::hash_bytes(text.data(), text.size()));
}

std::string message_of(const PlacedFinding& placed) {
  const Finding& finding = *placed.finding;
  std::string text = placed.result == nullptr
                         ? finding.headline
                         : fmt::format("{}: {}", placed.result->id, finding.headline);
  if (!finding.culprits.empty())
    text += fmt::format("\nculprit: rank{} {}", finding.culprits.size() == 1 ? "" : "s",
                        finding.culprits.to_string());
  for (const Evidence& line : finding.evidence)
    text += "\n" + line.text;
  if (!finding.help.empty())
    text += "\nhelp: " + finding.help;
  return text;
}

Json location_of(const SiteRef& site, const std::string& root) {
  const File file = file_of(site, root);
  Json artifact = {{"uri", (file.in_repository ? "" : "file://") + uri_of(file.name)}};
  if (file.in_repository)
    artifact["uriBaseId"] = "%SRCROOT%";
  Json location = {
      {"physicalLocation",
       {{"artifactLocation", artifact}, {"region", {{"startLine", std::max(site.line, 1)}}}}},
      {"message", {{"text", fmt::format("rank {}: {}", site.rank.value, site.role)}}}};
  if (!site.function.empty())
    location["logicalLocations"] = Json::array({{{"fullyQualifiedName", site.function}}});
  return location;
}

std::string_view level_of(Severity severity) {
  return severity == Severity::kError     ? "error"
         : severity == Severity::kWarning ? "warning"
                                          : "note";
}

Json result_of(const PlacedFinding& placed, const std::string& root) {
  const Finding& finding = *placed.finding;
  Json result = {{"ruleId", text_of(finding.code)},
                 {"kind", "fail"},
                 {"level", level_of(finding.severity)},
                 {"message", {{"text", message_of(placed)}}},
                 {"partialFingerprints", {{"lockstep/v1", fingerprint_of(finding, root)}}}};
  if (const SiteRef* const place = place_of(finding)) {
    result["locations"] = Json::array({location_of(*place, root)});
    for (const SiteRef& site : finding.sites) {
      Json location = location_of(site, root);
      location["id"] = result["relatedLocations"].size() + 1;
      result["relatedLocations"].push_back(std::move(location));
    }
    Json flows = Json::array();
    for (const SiteRef& site : finding.sites)
      flows.push_back({{"id", fmt::format("rank {}", site.rank.value)},
                       {"locations", Json::array({{{"location", location_of(site, root)}}})}});
    result["codeFlows"] = Json::array({{{"threadFlows", flows}}});
  }
  Json culprits = Json::array();
  for (const Rank rank : finding.culprits)
    culprits.push_back(rank.value);
  result["properties"] = {{"culprits", culprits},
                          {"operation", finding.op},
                          {"confidence", name_of(finding.confidence)}};
  return result;
}

/// Why nothing can be said, of the whole, of a check, of a case.
std::vector<std::string> open_questions(const Report& report) {
  std::vector<std::string> open;
  if (report.outcome == Outcome::kUndecided && !report.reason.empty())
    open.push_back(report.reason);
  for (const Verdict& check : report.checks) {
    if (check.outcome == Outcome::kUndecided)
      open.push_back(fmt::format("{}: {}", check.name, check.reason));
  }
  for (const CaseReport& result : report.cases) {
    if (result.outcome == Outcome::kUndecided)
      open.push_back(fmt::format("{}: {}", result.id, result.reason));
  }
  return open;
}

Json rules_of(const std::vector<PlacedFinding>& findings) {
  std::set<Code> codes;
  for (const PlacedFinding& placed : findings)
    codes.insert(placed.finding->code);
  Json rules = Json::array();
  for (const Code code : codes)
    rules.push_back({{"id", text_of(code)},
                     {"name", row_of(code).slug},
                     {"shortDescription", {{"text", row_of(code).title}}}});
  return rules;
}

/// Of the value of a property of a command of GitHub's, or of its text.
std::string escaped(std::string_view text, bool is_property) {
  std::string out;
  for (const char c : text) {
    const bool special =
        c == '%' || c == '\r' || c == '\n' || (is_property && (c == ':' || c == ','));
    out += special ? fmt::format("%{:02X}", static_cast<unsigned char>(c)) : std::string(1, c);
  }
  return out;
}

std::string command(std::string_view word, const SiteRef* place, const std::string& title,
                    const std::string& text, const std::string& root) {
  std::string out = fmt::format("::{} ", word);
  if (place != nullptr)
    out += fmt::format("file={},line={},", escaped(file_of(*place, root).name, true),
                       std::max(place->line, 1));
  return out + fmt::format("title={}::{}\n", escaped(title, true), escaped(text, false));
}

}  // namespace

std::string render_sarif(const Report& report, const std::string& root) {
  const std::vector<PlacedFinding> findings = report::all_findings(report);
  Json results = Json::array();
  for (const PlacedFinding& placed : findings)
    results.push_back(result_of(placed, root));
  for (const std::string& question : open_questions(report))
    results.push_back({{"kind", "open"}, {"level", "none"}, {"message", {{"text", question}}}});
  const Json driver = {{"name", "lockstep"}, {"version", kVersion}, {"rules", rules_of(findings)}};
  const Json invocation = {{"executionSuccessful", report.reason.empty()},
                           {"exitCode", report.exit_status},
                           {"commandLine", fmt::format("{}", fmt::join(report.command, " "))}};
  const Json run = {{"tool", {{"driver", driver}}},
                    {"invocations", Json::array({invocation})},
                    {"columnKind", "unicodeCodePoints"},
                    {"results", results}};
  return dump({{"$schema", "https://json.schemastore.org/sarif-2.1.0.json"},
               {"version", "2.1.0"},
               {"runs", Json::array({run})}});
}

std::string render_github(const Report& report, const std::string& root) {
  std::string out;
  for (const PlacedFinding& placed : report::all_findings(report)) {
    const Finding& finding = *placed.finding;
    const std::string_view word =
        finding.severity == Severity::kNote ? "notice" : level_of(finding.severity);
    out += command(word, place_of(finding),
                   fmt::format("{} {}", text_of(finding.code), row_of(finding.code).title),
                   message_of(placed), root);
  }
  for (const std::string& question : open_questions(report))
    out += command("warning", nullptr, "undecided", question, root);
  return out;
}

std::string render_gitlab(const Report& report, const std::string& root) {
  Json list = Json::array();
  for (const PlacedFinding& placed : report::all_findings(report)) {
    const Finding& finding = *placed.finding;
    const SiteRef* const place = place_of(finding);
    list.push_back({{"description", fmt::format("{}: {}", text_of(finding.code), finding.headline)},
                    {"check_name", text_of(finding.code)},
                    {"fingerprint", fingerprint_of(finding, root)},
                    {"severity", finding.severity == Severity::kError     ? "critical"
                                 : finding.severity == Severity::kWarning ? "minor"
                                                                          : "info"},
                    {"location",
                     {{"path", place == nullptr ? "." : file_of(*place, root).name},
                      {"lines", {{"begin", place == nullptr ? 1 : std::max(place->line, 1)}}}}}});
  }
  return dump(list);
}

std::string render_markdown(const Report& report) {
  const auto inline_text = [](std::string_view text) {
    std::string out;
    for (const char c : report::clean(text)) {
      if (std::string_view("\\`*_{}[]<>#|").find(c) != std::string_view::npos)
        out += '\\';
      out += c == '\n' ? ' ' : c;
    }
    return out;
  };
  std::string out = fmt::format("### lockstep: {}\n", name_of(report.outcome));
  for (const PlacedFinding& placed : report::all_findings(report)) {
    const Finding& finding = *placed.finding;
    out += fmt::format("\n**{}[{}]** {}\n", name_of(finding.severity), text_of(finding.code),
                       inline_text(finding.headline));
    for (const Evidence& line : finding.evidence)
      out += fmt::format("- {}\n", inline_text(line.text));
    for (const SiteRef& site : finding.sites)
      out += fmt::format("- rank {} ({}): {}:{}\n", site.rank.value, inline_text(site.role),
                         inline_text(site.file), site.line);
  }
  const std::vector<std::string> open = open_questions(report);
  if (!open.empty())
    out += "\nUndecided:\n\n";
  for (const std::string& question : open)
    out += fmt::format("- {}\n", inline_text(question));
  return out;
}

}  // namespace lockstep
