#include "harness/diagnose/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "harness/base/version.h"
#include "harness/model/call_site.h"
#include "harness/model/group_view.h"
#include "harness/report/finding_text.h"
#include "harness/report/json.h"

namespace lockstep::diagnose {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kPidsShown = 8, kFramesShown = 14;

/// Ranks that do the same thing at the same line.
struct Group {
  std::string text{};
  std::vector<const Standing*> members{};
};

/// Largest first.
std::vector<Group> groups_of(const Diagnosis& diagnosis) {
  std::vector<Group> groups;
  for (const Standing& one : diagnosis.ranks) {
    const std::string text = one.doing + at_site(one.site);
    auto at = std::find_if(groups.begin(), groups.end(),
                           [&](const Group& group) { return group.text == text; });
    if (at == groups.end())
      at = groups.insert(at, {.text = text});
    at->members.push_back(&one);
  }
  std::stable_sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) {
    return a.members.size() > b.members.size();
  });
  return groups;
}

RankSet ranks_of(const Group& group) {
  RankSet ranks;
  for (const Standing* one : group.members)
    ranks.insert(one->rank);
  return ranks;
}

std::string times_of(const Group& group) {
  std::optional<std::uint64_t> least, most;
  for (const Standing* one : group.members) {
    if (!one->for_ns)
      continue;
    least = std::min(least.value_or(*one->for_ns), *one->for_ns);
    most = std::max(most.value_or(*one->for_ns), *one->for_ns);
  }
  if (!most || *most < 500'000'000)
    return "";
  const auto seconds = [](std::uint64_t ns) { return std::llround(static_cast<double>(ns) / 1e9); };
  return seconds(*least) == seconds(*most)
             ? fmt::format(" for {} s", seconds(*most))
             : fmt::format(" for {} to {} s", seconds(*least), seconds(*most));
}

std::string pids_of(const Group& group) {
  std::vector<std::int32_t> pids;
  for (const Standing* one : group.members) {
    if (one->pid != 0 && pids.size() < kPidsShown)
      pids.push_back(one->pid);
  }
  return pids.empty() ? ""
                      : fmt::format("  (pid {}{})", fmt::join(pids, ", "),
                                    group.members.size() > kPidsShown ? ", ..." : "");
}

std::vector<std::string> stack_lines(const StackSample& stack) {
  std::vector<std::string> lines;
  for (const Frame& frame : stack.frames) {
    if (frame.function.empty() ||
        (!frame.is_python() && frame.line == 0 && frame.function.rfind("_Py", 0) == 0))
      continue;
    if (lines.size() == kFramesShown) {
      lines.emplace_back("...");
      break;
    }
    const std::string& source = frame.file.empty() ? frame.module : frame.file;
    lines.push_back(frame.line > 0
                        ? fmt::format("{}  {}:{}", frame.function, source, frame.line)
                        : fmt::format("{}  {}", frame.function.substr(0, frame.function.find('(')),
                                      source.substr(source.rfind('/') + 1)));
  }
  return lines;
}

Json site_json(const std::optional<SiteRef>& site) {
  if (!site)
    return nullptr;
  return {{"file", site->file}, {"line", site->line}, {"function", site->function}};
}

std::string_view name_of(Stand stand) {
  constexpr std::string_view kNames[] = {"unseen",     "not-here", "ended", "runs",    "computes",
                                         "held",       "exiting",  "call",  "message", "new-group",
                                         "rendezvous", "store",    "device"};
  return kNames[static_cast<std::size_t>(stand)];
}

Json rank_json(const Standing& one, const Look& look) {
  Json stack = Json::array();
  if (const StackSample* const main = main_stack_of(look.run, one.pid)) {
    for (const Frame& frame : main->frames)
      stack.push_back({{"function", frame.function},
                       {"file", frame.file.empty() ? frame.module : frame.file},
                       {"line", frame.line}});
  }
  return {{"rank", one.rank.value},
          {"pid", one.pid},
          {"state", name_of(one.stand)},
          {"waits_for_others", one.waits_for_others()},
          {"doing", one.doing},
          {"call", one.call},
          {"members", one.members},
          {"peer", one.peer ? Json(*one.peer) : Json(nullptr)},
          {"site", site_json(one.site)},
          {"for_s", one.for_ns ? Json(std::round(static_cast<double>(*one.for_ns) / 1e6) / 1e3)
                               : Json(nullptr)},
          {"more", one.more},
          {"stack", std::move(stack)}};
}

}  // namespace

std::string render_text(const Diagnosis& diagnosis, const Look& look, const std::string& name,
                        bool stacks, const HumanOptions& options) {
  std::string text = fmt::format("lockstep {}  {} of {} ranks of the job {} are on this host\n\n",
                                 kVersion, look.ranks.size(), look.world_size, name);
  std::size_t width = 0;
  const std::vector<Group> groups = groups_of(diagnosis);
  for (const Group& group : groups)
    width = std::max(width, words(ranks_of(group)).size());
  for (const Group& group : groups) {
    text += fmt::format("  {:<{}}  {}{}{}\n", words(ranks_of(group)), width, group.text,
                        times_of(group), pids_of(group));
    const StackSample* const stack =
        stacks ? main_stack_of(look.run, group.members.front()->pid) : nullptr;
    for (const std::string& line :
         stack == nullptr ? std::vector<std::string>() : stack_lines(*stack))
      text += fmt::format("  {:<{}}    {}\n", "", width, line);
  }
  text += "\n";
  if (diagnosis.finding) {
    Finding finding = *diagnosis.finding;
    text += report::finding_block(finding, nullptr, look.world_size, options);
  } else {
    text += fmt::format("{}{}\n",
                        diagnosis.outcome == Outcome::kPass ? "" : "undecided: ", diagnosis.reason);
  }
  return text;
}

std::string render_json(const Diagnosis& diagnosis, const Look& look, const std::string& name,
                        double took_s) {
  Report report;
  if (diagnosis.finding)
    report.findings.push_back(*diagnosis.finding);
  Json ranks = Json::array();
  for (const Standing& one : diagnosis.ranks)
    ranks.push_back(rank_json(one, look));
  const Json document = {{"schema", "lockstep-diagnosis/1"},
                         {"lockstep", kVersion},
                         {"job", name},
                         {"world_size", look.world_size},
                         {"took_s", std::round(took_s * 1000) / 1000},
                         {"verdict", lockstep::name_of(diagnosis.outcome)},
                         {"reason", diagnosis.reason},
                         {"ranks", std::move(ranks)},
                         {"findings", Json::parse(lockstep::render_json(report))["findings"]}};
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::diagnose
