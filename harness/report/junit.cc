#include "harness/report/junit.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/report/finding_text.h"
#include "harness/report/text.h"

namespace lockstep {
namespace {

/// A <testcase>, still as values.
struct Entry {
  std::string classname{};
  std::string name{};
  Outcome outcome{};
  double wall_s{};
  std::string type{};     ///< Code of the first finding.
  std::string message{};  ///< Its headline, or the reason.
  std::string text{};     ///< Everything, for people.
};

struct Suite {
  std::string name{};
  std::vector<Entry> entries{};
};

/// For element text and attribute values alike. `clean` leaves line feeds as the only control
/// character.
std::string xml(std::string_view text) {
  std::string out;
  for (const char c : report::clean(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\n':
        out += "&#10;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

/// Element text keeps its line feeds as they are.
std::string xml_text(std::string_view text) {
  std::string out;
  for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    out += xml(text.substr(0, end)) + "\n";
    text.remove_prefix(end + 1);
  }
  return out + xml(text);
}

void explain(Entry& entry, const std::vector<Finding>& findings, const CaseReport* result,
             std::int32_t world_size) {
  for (const Finding& finding : findings)
    entry.text +=
        (entry.text.empty() ? "" : "\n") + report::finding_block(finding, result, world_size, {});
  if (entry.outcome == Outcome::kFail && !findings.empty()) {
    entry.type = text_of(findings.front().code);
    entry.message = findings.front().headline;
  }
}

Entry entry_of(const CaseReport& result) {
  Entry entry{.classname = fmt::format("{}.{}", result.scenario, result.implementation),
              .name = result.id,
              .outcome = result.outcome,
              .wall_s = result.wall_s,
              .message = result.reason};
  explain(entry, result.findings, &result, result.ranks);
  if (result.outcome == Outcome::kUndecided)
    entry.text += report::undecided_block(result, {});
  return entry;
}

Entry entry_of(const Verdict& check, const Report& report) {
  Entry entry{
      .classname = "run", .name = check.name, .outcome = check.outcome, .message = check.reason};
  // A check whose finding describes a divergence less well than another's has left it to the
  // report.
  if (check.outcome == Outcome::kFail)
    explain(entry, check.findings.empty() ? report.findings : check.findings, nullptr,
            report.world_size.value_or(0));
  return entry;
}

std::string entry_text(const Entry& entry) {
  std::string out = fmt::format("    <testcase classname=\"{}\" name=\"{}\" time=\"{:.3f}\"",
                                xml(entry.classname), xml(entry.name), entry.wall_s);
  const std::string message = xml(entry.message);
  const std::string text = xml_text(entry.text);
  switch (entry.outcome) {
    case Outcome::kPass:
      return out + "/>\n";
    case Outcome::kSkipped:
      return out + fmt::format(">\n      <skipped message=\"{}\"/>\n    </testcase>\n", message);
    case Outcome::kFail:
      return out +
             fmt::format(
                 ">\n      <failure type=\"{}\" message=\"{}\">{}</failure>\n    </testcase>\n",
                 xml(entry.type), message, text);
    case Outcome::kUndecided:
      break;
  }
  return out +
         fmt::format(
             ">\n      <error type=\"undecided\" message=\"{}\">{}</error>\n    </testcase>\n",
             message, text);
}

std::string counts_text(const std::vector<Suite>& suites, double wall_s) {
  std::map<Outcome, std::size_t> counts;
  std::size_t tests = 0;
  for (const Suite& suite : suites) {
    for (const Entry& entry : suite.entries) {
      ++counts[entry.outcome];
      ++tests;
    }
  }
  return fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3f}\"",
                     tests, counts[Outcome::kFail], counts[Outcome::kUndecided],
                     counts[Outcome::kSkipped], wall_s);
}

std::vector<Suite> suites_of(const Report& report) {
  std::vector<Suite> suites;
  const auto entries_of = [&](const std::string& name) -> std::vector<Entry>& {
    const auto same = std::find_if(suites.begin(), suites.end(),
                                   [&](const Suite& suite) { return suite.name == name; });
    return same != suites.end() ? same->entries : suites.emplace_back(Suite{.name = name}).entries;
  };
  for (const CaseReport& result : report.cases)
    entries_of(result.scenario).push_back(entry_of(result));
  if (report.cases.empty()) {
    for (const Verdict& check : report.checks)
      entries_of("run").push_back(entry_of(check, report));
  }
  const bool seen = std::any_of(suites.begin(), suites.end(), [&](const Suite& suite) {
    return std::any_of(suite.entries.begin(), suite.entries.end(),
                       [&](const Entry& entry) { return entry.outcome == report.outcome; });
  });
  const bool of_suite = !report.cases.empty() && !report.findings.empty();
  if (!seen || of_suite || !report.reason.empty()) {
    Entry entry{
        .classname = "run", .name = "verdict", .outcome = report.outcome, .message = report.reason};
    explain(entry, report.findings, nullptr, report.world_size.value_or(0));
    entries_of("run").push_back(std::move(entry));
  }
  return suites;
}

}  // namespace

std::string render_junit(const Report& report) {
  const std::vector<Suite> suites = suites_of(report);
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  out += fmt::format("<testsuites name=\"lockstep\" {}>\n", counts_text(suites, report.wall_s));
  for (const Suite& suite : suites) {
    double wall_s = 0;
    for (const Entry& entry : suite.entries)
      wall_s += entry.wall_s;
    out += fmt::format("  <testsuite name=\"{}\" {}>\n", xml(suite.name),
                       counts_text({suite}, wall_s));
    for (const Entry& entry : suite.entries)
      out += entry_text(entry);
    out += "  </testsuite>\n";
  }
  return out + "</testsuites>\n";
}

}  // namespace lockstep
