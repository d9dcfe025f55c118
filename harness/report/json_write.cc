#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "harness/report/json.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

Json number_json(double value) {
  if (std::isnan(value))
    return "nan";
  if (std::isinf(value))
    return value > 0 ? "inf" : "-inf";
  return value;
}

/// Durations are measured to the millisecond, not to the digits of a double.
Json seconds_json(double seconds) { return number_json(std::round(seconds * 1000) / 1000); }

template <class T>
Json optional_json(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json ranks_json(const RankSet& ranks) {
  Json list = Json::array();
  for (const Rank rank : ranks)
    list.push_back(rank.value);
  return list;
}

template <class T, class ToJson>
Json list_json(const std::vector<T>& values, ToJson to_json) {
  Json list = Json::array();
  for (const T& value : values)
    list.push_back(to_json(value));
  return list;
}

Json status_json(const RankStatus& status) {
  Json end = nullptr;
  if (status.exited)
    end = {{"exited", *status.exited}};
  else if (status.signaled)
    end = {{"signaled", *status.signaled}};
  return {{"rank", status.rank.value},
          {"pid", status.pid},
          {"host", status.host},
          {"status", std::move(end)}};
}

Json world_json(const WorldReport& world) {
  return {{"name", world.name},
          {"world_size", world.world_size},
          {"verdict", name_of(world.outcome)},
          {"ranks", list_json(world.ranks, status_json)}};
}

Json check_json(const Verdict& check) {
  return {{"name", check.name},
          {"verdict", name_of(check.outcome)},
          {"reason", check.reason},
          {"examined", Json(check.examined)}};
}

Json site_json(const SiteRef& site, const LineText& line_text) {
  Json json = {{"rank", site.rank.value},
               {"role", site.role},
               {"file", site.file},
               {"line", site.line},
               {"function", site.function}};
  if (std::string text = line_text ? line_text(site) : ""; !text.empty())
    json["text"] = std::move(text);
  return json;
}

Json evidence_json(const Evidence& evidence, const LineText& line_text) {
  Json json = {{"kind", name_of(evidence.kind)}};
  if (!evidence.ranks.empty())
    json["ranks"] = ranks_json(evidence.ranks);
  if (evidence.call)
    json["call"] = {{"group", evidence.call->group}, {"seq", evidence.call->seq}};
  if (evidence.site)
    json["site"] = site_json(*evidence.site, line_text);
  json["text"] = evidence.text;
  return json;
}

Json texts_of(const std::vector<Code>& codes) {
  Json texts = Json::array();
  for (const Code code : codes)
    texts.push_back(text_of(code));
  return texts;
}

Json finding_json(const Finding& finding, const CaseReport* result, const LineText& line_text) {
  return {
      {"code", text_of(finding.code)},
      {"also", texts_of(finding.also)},
      {"severity", name_of(finding.severity)},
      {"case", result == nullptr ? Json(nullptr) : Json(result->id)},
      {"world", finding.world.empty() ? Json(nullptr) : Json(finding.world)},
      {"headline", finding.headline},
      {"culprits", ranks_json(finding.culprits)},
      {"affected", ranks_json(finding.affected)},
      {"group", finding.group},
      {"op", finding.op},
      {"seq", optional_json(finding.seq)},
      {"step", optional_json(finding.step)},
      {"names", finding.names},
      {"sites",
       list_json(finding.sites, [&](const SiteRef& site) { return site_json(site, line_text); })},
      {"evidence", list_json(finding.evidence,
                             [&](const Evidence& line) { return evidence_json(line, line_text); })},
      {"cause", {{"text", finding.cause}, {"confidence", name_of(finding.confidence)}}},
      {"consequences", finding.consequences},
      {"ruled_out", finding.ruled_out},
      {"unseen", finding.unseen},
      {"help", finding.help}};
}

Json measure_json(const Measure& measure) {
  return {{"name", measure.name},
          {"value", number_json(measure.value)},
          {"tolerance", number_json(measure.tolerance)},
          {"rule", measure.rule},
          {"unit", measure.unit},
          {"power", measure.power ? number_json(*measure.power) : Json(nullptr)}};
}

Json mutant_json(const MutantResult& mutant) {
  return {{"name", mutant.name},
          {"of", mutant.of},
          {"expected", text_of(mutant.expected)},
          {"got", texts_of(mutant.got)},
          {"culprits", ranks_json(mutant.culprits)}};
}

Json case_json(const CaseReport& result) {
  return {{"id", result.id},
          {"scenario", result.scenario},
          {"implementation", result.implementation},
          {"subject", result.subject},
          {"ranks", result.ranks},
          {"dtype", result.dtype},
          {"device", result.device},
          {"seed", result.seed},
          {"verdict", name_of(result.outcome)},
          {"reason", result.reason},
          {"marks", result.marks},
          {"measures", list_json(result.measures, measure_json)},
          {"mutants", list_json(result.mutants, mutant_json)},
          {"wall_s", seconds_json(result.wall_s)}};
}

Json findings_json(const Report& report, const LineText& line_text) {
  Json list = Json::array();
  for (const Finding& finding : report.findings)
    list.push_back(finding_json(finding, nullptr, line_text));
  for (const CaseReport& result : report.cases) {
    for (const Finding& finding : result.findings)
      list.push_back(finding_json(finding, &result, line_text));
  }
  return list;
}

}  // namespace

std::string render_json(const Report& report, const LineText& line_text) {
  Json document = {{"format", "lockstep-report/2"},
                   {"run", report.run},
                   {"command", report.command},
                   {"verdict", name_of(report.outcome)},
                   {"reason", report.reason},
                   {"unseen", report.unseen},
                   {"exit", report.exit_status},
                   {"program_exit", optional_json(report.program_exit)},
                   {"world_size", optional_json(report.world_size)},
                   {"wall_s", seconds_json(report.wall_s)},
                   {"versions", Json(report.versions)},
                   {"ranks", list_json(report.ranks, status_json)},
                   {"worlds", list_json(report.worlds, world_json)},
                   {"checks", list_json(report.checks, check_json)},
                   {"findings", findings_json(report, line_text)},
                   {"cases", list_json(report.cases, case_json)}};
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep
