#include "harness/history/run_json.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "harness/base/unique_fd.h"
#include "harness/history/journal_json.h"

namespace lockstep::history {
namespace {

constexpr const char* kFormat = "lockstep-run/1";

void get_strings(Fields& fields, const char* key, std::vector<std::string>& list) {
  fields.each(key, [&](const Json& item) {
    if (item.is_string())
      list.push_back(item.get<std::string>());
  });
}

void get_map(const Json& json, const char* key, std::map<std::string, std::string>& map) {
  const auto at = json.find(key);
  if (at == json.end() || !at->is_object())
    return;
  for (const auto& [name, value] : at->items()) {
    if (value.is_string())
      map[name] = value.get<std::string>();
  }
}

}  // namespace

std::string plan_to_json(const Plan& plan, std::uint64_t monotonic_ns, std::uint64_t wall_ns) {
  Json parameters = Json::array();
  for (const auto& [name, numel] : plan.parameters)
    parameters.push_back({name, numel});
  const Json json = {{"format", kFormat},
                     {"id", plan.id},
                     {"begun_ns", plan.begun_ns},
                     {"command", plan.command},
                     {"world_size", plan.world_size},
                     {"scenario", plan.scenario},
                     {"implementation", plan.implementation},
                     {"dtype", plan.dtype},
                     {"device", plan.device},
                     {"mutant", plan.mutant},
                     {"seed", plan.seed},
                     {"options", plan.options},
                     {"contract", plan.contract},
                     {"cases", plan.cases},
                     {"case_id", plan.case_id},
                     {"batches", plan.batches},
                     {"expected_marks", plan.expected_marks},
                     {"required_checks", plan.required_checks},
                     {"required", plan.required},
                     {"expected_site", plan.expected_site},
                     {"versions", plan.versions},
                     {"parameters", parameters},
                     {"monotonic_ns", monotonic_ns},
                     {"wall_ns", wall_ns}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Plan> plan_from_json(const std::string& text, const std::string& path) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || json.value("format", Json()) != Json(kFormat))
    return Error{Error::Kind::kMalformedHistory, fmt::format("{} is not a {} file", path, kFormat),
                 "read it with the version of lockstep that wrote it"};
  Plan plan;
  Fields fields(json);
  fields.get("id", plan.id);
  fields.get("begun_ns", plan.begun_ns);
  fields.get("monotonic_ns", plan.written_ns);
  fields.get("wall_ns", plan.wall_ns);
  get_strings(fields, "command", plan.command);
  fields.get("world_size", plan.world_size);
  fields.get("scenario", plan.scenario);
  fields.get("implementation", plan.implementation);
  fields.get("dtype", plan.dtype);
  fields.get("device", plan.device);
  fields.get("mutant", plan.mutant);
  fields.get("seed", plan.seed);
  get_map(json, "options", plan.options);
  get_map(json, "contract", plan.contract);
  get_map(json, "versions", plan.versions);
  get_strings(fields, "cases", plan.cases);
  fields.get("case_id", plan.case_id);
  fields.get("batches", plan.batches);
  get_strings(fields, "expected_marks", plan.expected_marks);
  get_strings(fields, "required_checks", plan.required_checks);
  fields.get("required", plan.required);
  fields.get("expected_site", plan.expected_site);
  fields.each("parameters", [&](const Json& item) {
    if (item.is_array() && item.size() == 2 && item[0].is_string() && item[1].is_number_integer())
      plan.parameters.emplace_back(item[0].get<std::string>(), item[1].get<std::int64_t>());
  });
  if (!fields.good())
    return Error{Error::Kind::kMalformedHistory,
                 fmt::format("{} has a field of the wrong type", path), ""};
  return plan;
}

std::string symbols_to_json(const std::vector<Frame>& frames) {
  return dump(Json{{"format", "lockstep-symbols/1"}, {"frames", to_json(frames)}}) + "\n";
}

std::vector<Frame> symbols_from_json(const std::string& text) {
  std::vector<Frame> frames;
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_object())
    Fields(json).get("frames", frames);
  return frames;
}

Result<void> write_file(const std::string& path, const std::string& text) {
  const std::string temporary = fmt::format("{}.tmp-{}", path, getpid());
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  int error = fd ? 0 : errno;
  for (std::size_t done = 0; error == 0 && done < text.size();) {
    const ssize_t wrote = ::write(fd.get(), text.data() + done, text.size() - done);
    if (wrote > 0)
      done += static_cast<std::size_t>(wrote);
    else if (wrote == 0 || errno != EINTR)
      error = wrote == 0 ? ENOSPC : errno;
  }
  if (error == 0 && ::rename(temporary.c_str(), path.c_str()) != 0)
    error = errno;
  if (error == 0)
    return {};
  ::unlink(temporary.c_str());
  return Error{Error::Kind::kIo, fmt::format("cannot write {}: {}", path, std::strerror(error)),
               "free some space, or choose another place with --run-dir"};
}

}  // namespace lockstep::history
