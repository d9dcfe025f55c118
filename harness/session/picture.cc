#include "harness/session/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "checkers/worlds.h"
#include "harness/history/hosts.h"
#include "harness/model/activity.h"
#include "harness/model/call_site.h"
#include "harness/model/group_view.h"
#include "harness/model/job.h"
#include "harness/model/matching.h"
#include "harness/report/json.h"

namespace lockstep::session {

extern const char* const kPage;  // Of page.html, by ci/embed_text.cmake.

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kCellsMax = 120'000;  // Of all groups; a page stays below 2 MB.
constexpr std::uint64_t kPlacesMax = 240;
constexpr std::size_t kGroupsMax = 32;
constexpr std::size_t kFramesShown = 16;
constexpr std::int32_t kLinesAround = 3;

std::string place(const std::optional<SiteRef>& site) {
  return site ? fmt::format("{}:{}", site->file, site->line) : "";
}

/// What calls have in common is said once.
class Kinds {
 public:
  std::size_t of(const Process& process, const Collective& call) {
    const std::string what = describe(call);
    const std::string site = place(site_of(process, call, ""));
    const auto [at, is_new] = index_.try_emplace({what, site}, index_.size());
    if (is_new)
      list_.push_back({{"op", history::name_of(call.op)}, {"what", what}, {"site", site}});
    return at->second;
  }
  [[nodiscard]] const Json& list() const { return list_; }

 private:
  std::map<std::pair<std::string, std::string>, std::size_t> index_{};
  Json list_ = Json::array();
};

char state_of_call(const Collective& call) {
  return call.failed ? 'f' : in_or_after(call) == "in" ? 'p' : 'd';
}

struct Window {
  std::uint64_t first{}, end{};
};

/// Around the first divergence of this group, or its end.
Window window_of(const GroupView& group, const Report& report, std::uint64_t places) {
  std::uint64_t begin = kNeverNs;
  std::uint64_t end = 0;
  for (const Member& member : group.members) {
    begin = std::min(begin, member.first_seq);
    end = std::max(end, member.end_seq());
  }
  begin = std::min(begin, end);
  for (const Finding& finding : report.findings) {
    if (finding.seq && finding.group == group.label() && *finding.seq < end)
      end = std::min(end, *finding.seq + places / 4 + 1);
  }
  return {end - begin > places ? end - places : begin, end};
}

Json row_of(const Member& member, const Window& window, Kinds& kinds) {
  const std::uint64_t first = std::max(window.first, std::min(member.first_seq, window.end));
  Json calls = Json::array();
  std::string states;
  for (std::uint64_t seq = first; seq < std::min(window.end, member.end_seq()); ++seq) {
    const Collective* const call = member.at(seq);
    calls.push_back(call == nullptr ? -1
                                    : static_cast<std::int64_t>(kinds.of(*member.process, *call)));
    states += call == nullptr ? '-' : state_of_call(*call);
  }
  return {{"rank", member.rank.value}, {"first", first}, {"calls", calls}, {"states", states}};
}

std::string end_of(const Run& run, Rank rank, std::int32_t pid) {
  for (const ProcessEnd& end : run.ends) {
    if (end.pid != pid || end.rank != rank)
      continue;
    const std::string how = end.signal ? fmt::format("killed by signal {}", *end.signal)
                                       : fmt::format("exited {}", end.exit_status.value_or(0));
    return end.our_signal ? how + " (ended by lockstep)" : how;
  }
  return "end not on record";
}

Json rank_of(const Run& run, Rank rank) {
  const Process* const process = current_process(run, rank);
  const std::int32_t pid = process == nullptr ? pid_of(run, rank) : process->pid;
  const StackSample* last = nullptr;
  for (const StackSample& stack : run.stacks) {
    if (stack.pid == pid && stack.tid == pid && (last == nullptr || stack.at_ns >= last->at_ns))
      last = &stack;
  }
  Json frames = Json::array();
  for (std::size_t i = 0; last != nullptr && i < std::min(last->frames.size(), kFramesShown); ++i) {
    const Frame& frame = last->frames[i];
    frames.push_back(frame.file.empty()
                         ? fmt::format("{}  {}", frame.function, frame.module)
                         : fmt::format("{}  {}:{}", frame.function, frame.file, frame.line));
  }
  return {{"rank", rank.value},
          {"pid", history::own_pid(pid)},
          {"state", end_of(run, rank, pid)},
          {"stack", frames}};
}

/// Those that findings are about first, of the others in their order.
std::vector<const GroupView*> in_order(const Job& job, const Report& report) {
  std::vector<const GroupView*> groups;
  for (const GroupView& group : job.groups())
    groups.push_back(&group);
  const auto is_asked_for = [&](const GroupView* group) {
    return std::any_of(report.findings.begin(), report.findings.end(),
                       [&](const Finding& finding) { return finding.group == group->label(); });
  };
  std::stable_partition(groups.begin(), groups.end(), is_asked_for);
  return groups;
}

Json job_of(const Report& report, const std::vector<World>& worlds) {
  Kinds kinds;
  Json groups = Json::array();
  Json ranks = Json::array();
  std::size_t rows = 1;
  for (const World& world : worlds)
    rows = std::max(rows, ranks_of(world.run).size());
  const std::uint64_t places = std::clamp<std::uint64_t>(
      kCellsMax / rows / std::max<std::size_t>(worlds.size(), 1), 8, kPlacesMax);
  for (std::size_t i = 0; i < worlds.size(); ++i) {
    const Job job(worlds[i].run);
    const std::string before = worlds.size() > 1 ? checkers::name_of(worlds, i) + ": " : "";
    for (const GroupView* const each : in_order(job, report)) {
      const GroupView& group = *each;
      const Window window = window_of(group, report, places);
      if (groups.size() == kGroupsMax || window.first == window.end)
        continue;
      Json list = Json::array();
      for (const Member& member : group.members)
        list.push_back(row_of(member, window, kinds));
      groups.push_back({{"label", before + group.label()},
                        {"size", group.size},
                        {"first", window.first},
                        {"rows", list}});
    }
    if (i + 1 == worlds.size()) {
      for (const Rank rank : ranks_of(worlds[i].run))
        ranks.push_back(rank_of(worlds[i].run, rank));
    }
  }
  return {{"groups", groups}, {"kinds", kinds.list()}, {"ranks", ranks}};
}

Json lines_around(const SiteRef& site) {
  Json lines = Json::array();
  std::ifstream file(site.file);
  std::string text;
  for (std::int32_t n = 1; n <= site.line + kLinesAround && std::getline(file, text); ++n) {
    if (n >= site.line - kLinesAround)
      lines.push_back({n, text.substr(0, 300)});
  }
  return lines;
}

Json sources_of(const Report& report) {
  Json sources = Json::object();
  const auto add = [&](const std::vector<Finding>& findings) {
    for (const Finding& finding : findings) {
      for (const SiteRef& site : finding.sites) {
        if (Json lines = lines_around(site); !lines.empty() && sources.size() < 200)
          sources[fmt::format("{}:{}", site.file, site.line)] = std::move(lines);
      }
    }
  };
  add(report.findings);
  for (const CaseReport& result : report.cases)
    add(result.findings);
  return sources;
}

/// No text of the run may end the element that holds it.
std::string inside_script(std::string text) {
  for (std::size_t at = text.find("</"); at != std::string::npos; at = text.find("</", at + 3))
    text.replace(at, 2, "<\\/");
  for (std::size_t at = text.find("<!--"); at != std::string::npos; at = text.find("<!--", at + 5))
    text.replace(at, 4, "<\\u0021--");
  return text;
}

}  // namespace

std::string render_page(const Report& report, const std::vector<World>& worlds) {
  const Json data = {{"report", Json::parse(render_json(report))},
                     {"job", worlds.empty() ? Json(nullptr) : job_of(report, worlds)},
                     {"sources", sources_of(report)}};
  std::string page(kPage);
  constexpr std::string_view kData = "/*DATA*/";
  const std::string text = inside_script(data.dump(-1, ' ', false, Json::error_handler_t::replace));
  return page.replace(page.find(kData), kData.size(), text);
}

}  // namespace lockstep::session
