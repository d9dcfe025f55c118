#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "harness/report/json.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kFormat = "lockstep-report/";
constexpr std::string_view kVersion = "2";

/// One object of the document. Keeps the first error; after it, everything reads as absent.
class Fields {
 public:
  Fields(const Json& object, std::string path, std::string& error)
      : object_(object), path_(std::move(path)), error_(error) {
    if (!object.is_object())
      fail_at(path_.substr(0, path_.find_last_not_of('.') + 1), "an object");
  }

  /// Null and absent leave the target as it is.
  void read(const char* key, std::string& target) const {
    if (const Json* value = find(key); value != nullptr)
      value->is_string() ? void(target = value->get<std::string>()) : fail(key, "a string");
  }
  void read(const char* key, double& target) const {
    const Json* value = find(key);
    if (value == nullptr)
      return;
    if (value->is_number())
      target = value->get<double>();
    else if (*value == "nan")
      target = std::numeric_limits<double>::quiet_NaN();
    else if (*value == "inf" || *value == "-inf")
      target = std::copysign(std::numeric_limits<double>::infinity(), *value == "inf" ? 1 : -1);
    else
      fail(key, "a number, \"nan\", \"inf\" or \"-inf\"");
  }
  template <class T>
  std::enable_if_t<std::is_integral_v<T>> read(const char* key, T& target) const {
    if (const Json* value = find(key); value != nullptr && !assign(*value, target))
      fail(key, "an integer in range");
  }
  template <class T>
  void read(const char* key, std::optional<T>& target) const {
    T value{};
    if (find(key) == nullptr)
      return;
    read(key, value);
    target = value;
  }
  void read(const char* key, std::vector<std::string>& target) const {
    each(key, [&](const Json& item, const std::string& path) {
      item.is_string() ? target.push_back(item.get<std::string>()) : fail_at(path, "a string");
    });
  }
  void read(const char* key, Code& target) const {
    std::string text;
    read(key, text);
    to_code(key, text, target);
  }
  void read(const char* key, std::vector<Code>& target) const {
    std::vector<std::string> texts;
    read(key, texts);
    for (const std::string& text : texts)
      to_code(key, text, target.emplace_back());
  }
  void read(const char* key, RankSet& target) const {
    each(key, [&](const Json& item, const std::string& path) {
      Rank rank;
      assign(item, rank.value) ? target.insert(rank) : fail_at(path, "a rank");
    });
  }
  template <class Enum>
  void read_word(const char* key, Enum& target, std::initializer_list<Enum> all) const {
    std::string word;
    read(key, word);
    if (word.empty())
      return;
    const auto found =
        std::find_if(all.begin(), all.end(), [&](Enum value) { return name_of(value) == word; });
    found != all.end() ? void(target = *found) : fail(key, "a known word, has \"" + word + "\"");
  }
  /// Calls `visit` for each member of an object, with the key.
  template <class Visit>
  void members(const char* key, Visit visit) const {
    const Json* value = find(key);
    if (value == nullptr)
      return;
    if (!value->is_object())
      return fail(key, "an object");
    for (const auto& item : value->items())
      visit(item.key(), Fields(*value, path_ + key + ".", error_));
  }
  /// Calls `visit` for each element of a list, with a reader for it.
  template <class Visit>
  void objects(const char* key, Visit visit) const {
    each(key, [&](const Json& item, const std::string& path) {
      visit(Fields(item, path + ".", error_));
    });
  }
  template <class Visit>
  void object(const char* key, Visit visit) const {
    if (const Json* value = find(key); value != nullptr)
      visit(Fields(*value, path_ + key + ".", error_));
  }

 private:
  void to_code(const char* key, const std::string& text, Code& target) const {
    const std::optional<Code> code = code_of(text);
    code ? void(target = *code) : fail(key, "a code of lockstep");
  }
  template <class T>
  static bool assign(const Json& value, T& target) {
    if (value.is_number_unsigned()) {
      const auto number = value.get<std::uint64_t>();
      if (number > static_cast<std::uint64_t>(std::numeric_limits<T>::max()))
        return false;
      target = static_cast<T>(number);
      return true;
    }
    if (!value.is_number_integer())
      return false;
    const auto number = value.get<std::int64_t>();
    if constexpr (std::is_signed_v<T>) {
      if (number < std::numeric_limits<T>::min())
        return false;
      target = static_cast<T>(number);
      return true;
    } else {
      return false;  // only negative numbers come here
    }
  }

  [[nodiscard]] const Json* find(const char* key) const {
    if (!error_.empty() || !object_.is_object())
      return nullptr;
    const auto at = object_.find(key);
    return at == object_.end() || at->is_null() ? nullptr : &*at;
  }
  template <class Visit>
  void each(const char* key, Visit visit) const {
    const Json* value = find(key);
    if (value == nullptr)
      return;
    if (!value->is_array())
      return fail(key, "a list");
    for (std::size_t i = 0; i < value->size() && error_.empty(); ++i)
      visit((*value)[i], path_ + key + "[" + std::to_string(i) + "]");
  }
  void fail(const char* key, const std::string& need) const { fail_at(path_ + key, need); }
  void fail_at(const std::string& path, const std::string& need) const {
    if (error_.empty())
      error_ = "report.json: " + (path.empty() ? "the document" : path) + " is not " + need;
  }

  const Json& object_;
  std::string path_;
  std::string& error_;
};

constexpr std::initializer_list<Outcome> kOutcomes = {Outcome::kUndecided, Outcome::kPass,
                                                      Outcome::kFail, Outcome::kSkipped};

RankStatus read_status(const Fields& fields) {
  RankStatus status;
  fields.read("rank", status.rank.value);
  fields.read("pid", status.pid);
  fields.read("host", status.host);
  fields.object("status", [&](const Fields& end) {
    end.read("exited", status.exited);
    end.read("signaled", status.signaled);
  });
  return status;
}

WorldReport read_world(const Fields& fields) {
  WorldReport world;
  fields.read("name", world.name);
  fields.read("world_size", world.world_size);
  fields.read_word("verdict", world.outcome, kOutcomes);
  fields.objects("ranks", [&](const Fields& rank) { world.ranks.push_back(read_status(rank)); });
  return world;
}

Verdict read_check(const Fields& fields) {
  Verdict check;
  fields.read("name", check.name);
  fields.read_word("verdict", check.outcome, kOutcomes);
  fields.read("reason", check.reason);
  fields.members("examined", [&](const std::string& noun, const Fields& counts) {
    counts.read(noun.c_str(), check.examined[noun]);
  });
  return check;
}

SiteRef read_site(const Fields& fields) {
  SiteRef site;
  fields.read("rank", site.rank.value);
  fields.read("role", site.role);
  fields.read("file", site.file);
  fields.read("line", site.line);
  fields.read("function", site.function);
  return site;
}

Evidence read_evidence(const Fields& fields) {
  Evidence evidence;
  fields.read_word(
      "kind", evidence.kind,
      {EvidenceKind::kCall, EvidenceKind::kWait, EvidenceKind::kEnd, EvidenceKind::kException,
       EvidenceKind::kProcess, EvidenceKind::kGroup, EvidenceKind::kResource, EvidenceKind::kValue,
       EvidenceKind::kSample, EvidenceKind::kRule, EvidenceKind::kFinding});
  fields.read("ranks", evidence.ranks);
  fields.object("call", [&](const Fields& call) {
    evidence.call.emplace();
    call.read("group", evidence.call->group);
    call.read("seq", evidence.call->seq);
  });
  fields.object("site", [&](const Fields& site) { evidence.site = read_site(site); });
  fields.read("text", evidence.text);
  return evidence;
}

Finding read_finding(const Fields& fields) {
  Finding finding;
  fields.read("code", finding.code);
  fields.read("also", finding.also);
  fields.read_word("severity", finding.severity,
                   {Severity::kError, Severity::kWarning, Severity::kNote});
  fields.read("world", finding.world);
  fields.read("headline", finding.headline);
  fields.read("culprits", finding.culprits);
  fields.read("affected", finding.affected);
  fields.read("group", finding.group);
  fields.read("op", finding.op);
  fields.read("seq", finding.seq);
  fields.read("step", finding.step);
  fields.read("names", finding.names);
  fields.objects("sites", [&](const Fields& site) { finding.sites.push_back(read_site(site)); });
  fields.objects("evidence",
                 [&](const Fields& line) { finding.evidence.push_back(read_evidence(line)); });
  fields.object("cause", [&](const Fields& cause) {
    cause.read("text", finding.cause);
    cause.read_word("confidence", finding.confidence,
                    {Confidence::kUnknown, Confidence::kLikely, Confidence::kCertain});
  });
  fields.read("consequences", finding.consequences);
  fields.read("ruled_out", finding.ruled_out);
  fields.read("unseen", finding.unseen);
  fields.read("help", finding.help);
  return finding;
}

Measure read_measure(const Fields& fields) {
  Measure measure;
  fields.read("name", measure.name);
  fields.read("value", measure.value);
  fields.read("tolerance", measure.tolerance);
  fields.read("rule", measure.rule);
  fields.read("unit", measure.unit);
  fields.read("power", measure.power);
  return measure;
}

MutantResult read_mutant(const Fields& fields) {
  MutantResult mutant;
  fields.read("name", mutant.name);
  fields.read("of", mutant.of);
  fields.read("expected", mutant.expected);
  fields.read("got", mutant.got);
  fields.read("culprits", mutant.culprits);
  mutant.expected_culprits = mutant.culprits;
  mutant.caught = mutant.got == std::vector<Code>{mutant.expected};
  return mutant;
}

CaseReport read_case(const Fields& fields) {
  CaseReport result;
  fields.read("id", result.id);
  fields.read("scenario", result.scenario);
  fields.read("implementation", result.implementation);
  fields.read("subject", result.subject);
  fields.read("ranks", result.ranks);
  fields.read("dtype", result.dtype);
  fields.read("device", result.device);
  fields.read("seed", result.seed);
  fields.read_word("verdict", result.outcome, kOutcomes);
  fields.read("reason", result.reason);
  fields.read("marks", result.marks);
  fields.objects("measures",
                 [&](const Fields& measure) { result.measures.push_back(read_measure(measure)); });
  fields.objects("mutants",
                 [&](const Fields& mutant) { result.mutants.push_back(read_mutant(mutant)); });
  fields.read("wall_s", result.wall_s);
  return result;
}

void read_findings(const Fields& fields, Report& report) {
  fields.objects("findings", [&](const Fields& object) {
    std::optional<std::string> id;
    object.read("case", id);
    const auto of_case = std::find_if(report.cases.begin(), report.cases.end(),
                                      [&](const CaseReport& result) { return result.id == id; });
    auto& findings = of_case == report.cases.end() ? report.findings : of_case->findings;
    findings.push_back(read_finding(object));
  });
}

}  // namespace

Result<Report> parse_report(std::string_view text) {
  const Json document = Json::parse(text, nullptr, false);
  const auto malformed = [](std::string what) {
    return Error{Error::Kind::kMalformedHistory, std::move(what), ""};
  };
  if (document.is_discarded())
    return malformed("report.json: not a JSON document");
  std::string error;
  const Fields fields(document, "", error);
  std::string format;
  fields.read("format", format);
  if (error.empty() && format != std::string(kFormat) + std::string(kVersion))
    return malformed("report.json: format is \"" + format + "\", need \"lockstep-report/2\"");
  Report report;
  fields.read("run", report.run);
  fields.read("command", report.command);
  fields.read_word("verdict", report.outcome, kOutcomes);
  fields.read("reason", report.reason);
  fields.read("unseen", report.unseen);
  fields.read("exit", report.exit_status);
  fields.read("program_exit", report.program_exit);
  fields.read("world_size", report.world_size);
  fields.read("wall_s", report.wall_s);
  fields.members("versions", [&](const std::string& name, const Fields& versions) {
    versions.read(name.c_str(), report.versions[name]);
  });
  fields.objects("ranks", [&](const Fields& rank) { report.ranks.push_back(read_status(rank)); });
  fields.objects("worlds",
                 [&](const Fields& world) { report.worlds.push_back(read_world(world)); });
  fields.objects("checks",
                 [&](const Fields& check) { report.checks.push_back(read_check(check)); });
  fields.objects("cases", [&](const Fields& result) { report.cases.push_back(read_case(result)); });
  read_findings(fields, report);
  if (!error.empty())
    return malformed(std::move(error));
  return report;
}

}  // namespace lockstep
