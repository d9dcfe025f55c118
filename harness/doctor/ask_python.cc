#include "harness/doctor/ask_python.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "harness/entry/program.h"
#include "harness/entry/tool.h"

namespace lockstep::doctor {

extern const char* const kProbe;

namespace {

using Json = nlohmann::json;

constexpr std::chrono::seconds kLimit{90};
constexpr int kSecondsToMeet = 10;
constexpr std::string_view kSign = "LOCKSTEP ";

std::string text(const Json& object, const char* name) {
  const auto at = object.find(name);
  return at != object.end() && at->is_string() ? at->get<std::string>() : "";
}

void take_versions(Torch& torch, const Json& said) {
  if (said.contains("torch"))
    torch.version = text(said, "torch");
  const auto cuda = said.find("cuda");
  if (cuda == said.end() || !cuda->is_object())
    return;
  torch.built_for_cuda = text(*cuda, "built_for");
  torch.nccl = text(*cuda, "nccl");
  torch.no_cuda_because = text(*cuda, "why");
  torch.cuda_available = cuda->value("available", false);
  torch.gpus = cuda->value("gpus", 0);
}

void take_round_trip(Torch& torch, const Json& said) {
  RoundTrip trip{.interface = text(said, "interface"), .error = text(said, "error")};
  if (said.value("right", false))
    trip.ms = said.value("ms", 0.0);
  else if (trip.error.empty())
    trip.error = "the sum was wrong";
  torch.round_trips.push_back(std::move(trip));
}

void take(Torch& torch, const Json& said) {
  take_versions(torch, said);
  if (said.contains("interface"))
    take_round_trip(torch, said);
  if (said.contains("no_torch"))
    torch.missing = text(said, "no_torch");
  torch.no_gloo |= said.value("no_gloo", false);
}

}  // namespace

Torch answer_of(std::string_view output, bool finished,
                const std::vector<std::string>& interfaces) {
  Torch torch;
  for (std::size_t at = 0; at < output.size();) {
    const std::size_t end = std::min(output.find('\n', at), output.size());
    const std::string_view line = output.substr(at, end - at);
    at = end + 1;
    if (line.substr(0, kSign.size()) != kSign)
      continue;  // Warnings of libraries.
    const Json said = Json::parse(line.substr(kSign.size()), nullptr, /*allow_exceptions=*/false);
    if (said.is_object())
      take(torch, said);
  }
  if (finished)
    return torch;
  if (torch.version.empty() && torch.missing.empty())
    torch.missing = fmt::format("no answer within {} s", kLimit.count());
  else if (!torch.version.empty() && !torch.no_gloo && torch.round_trips.size() < interfaces.size())
    torch.round_trips.push_back({.interface = interfaces[torch.round_trips.size()],
                                 .error = "the two ranks did not come back from it"});
  return torch;
}

Torch ask_python(const std::vector<std::string>& interfaces) {
  const char* const set = std::getenv("LOCKSTEP_PYTHON");
  const std::string name = set != nullptr && *set != 0 ? set : "python3";
  const std::optional<std::string> path =
      name.find('/') != std::string::npos ? std::optional(name) : entry::find_in_path(name);
  if (!path)
    return {};
  std::vector<std::string> command{
      *path, "-B", "-c", kProbe, std::to_string(kSecondsToMeet), std::to_string(kLimit.count())};
  command.insert(command.end(), interfaces.begin(), interfaces.end());
  const entry::ToolResult result = entry::run_tool(command, kLimit);
  Torch torch = answer_of(result.output, result.status == 0, interfaces);
  torch.python = *path;
  if (!result.started)
    torch.missing = "it cannot be started";
  else if (torch.version.empty() && torch.missing.empty())
    torch.missing = "it gave no answer";
  return torch;
}

}  // namespace lockstep::doctor
