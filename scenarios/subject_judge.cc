#include "scenarios/subject_judge.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "harness/model/call_site.h"

namespace lockstep {
namespace {

constexpr std::size_t kPlacesMax = 6;

/// Issued by the host in the place of a wrapper: see harness/subject/averaging.py, and
/// average_by_host of fixtures/rank_host.
bool is_of_host(const Process& process, const Collective& call) {
  if (call.site >= process.sites.size())
    return false;
  const std::vector<Frame>& frames = process.sites[call.site].frames;
  return std::any_of(frames.begin(), frames.end(), [](const Frame& frame) {
    return frame.module.find("/subject/averaging.py") != std::string::npos ||
           (frame.module.ends_with("/lockstep_rank_host") &&
            frame.function.find("average_by_host") != std::string::npos);
  });
}

/// The subject's own lines, from the call outwards; none where only the host that its library is
/// loaded into has one.
std::vector<SiteRef> lines_of(const Process& process, const Collective& call) {
  std::vector<SiteRef> lines;
  if (call.site >= process.sites.size())
    return lines;
  std::vector<Frame> frames = process.sites[call.site].frames;
  std::erase_if(frames,
                [](const Frame& frame) { return frame.module.ends_with("/lockstep_rank_host"); });
  while (const auto line = site_of(*process.rank, frames, "reduces")) {
    const auto at = std::find_if(frames.begin(), frames.end(), [&](const Frame& frame) {
      return frame.file == line->file && frame.line == line->line;
    });
    frames.erase(frames.begin(), at + 1);
    lines.push_back(*line);
  }
  return lines;
}

/// A place of its source, "file:line".
std::optional<SiteRef> declared_at(const Run& run, const char* which, const char* role) {
  const std::string at = run.plan.declared(which);
  const std::size_t colon = at.rfind(':');
  SiteRef site{.rank = Rank{0}, .role = role};
  if (colon == std::string::npos ||
      std::from_chars(at.data() + colon + 1, at.data() + at.size(), site.line).ec != std::errc{})
    return std::nullopt;
  site.file = at.substr(0, colon);
  site.function = run.plan.declared("subject");
  return site;
}

/// Where rank 0 issues its collectives, in the order in which it came there, and how many of each.
struct Place {
  SiteRef site{};
  std::map<std::string, std::size_t> calls{};
};

/// A call, by the subject's line that made it, and by the one that the subject came from.
struct Reached {
  SiteRef inner{}, outer{};
  std::string op{};
};

std::vector<Reached> reached_by_first_rank(const Run& run) {
  std::vector<Reached> all;
  for (const Process& process : run.processes) {
    if (process.rank != Rank{0} || process.beside)
      continue;
    for (const Collective& call : process.collectives) {
      if (is_of_host(process, call))
        continue;
      if (const std::vector<SiteRef> lines = lines_of(process, call); !lines.empty())
        all.push_back({lines.front(), lines.back(), std::string(history::name_of(call.op))});
    }
  }
  return all;
}

std::vector<Place> places_at(const std::vector<Reached>& all, SiteRef Reached::*which) {
  std::vector<Place> places;
  for (const Reached& reached : all) {
    const SiteRef& site = reached.*which;
    auto at = std::find_if(places.begin(), places.end(), [&](const Place& place) {
      return place.site.file == site.file && place.site.line == site.line;
    });
    if (at == places.end())
      at = places.insert(places.end(), Place{.site = site});
    ++at->calls[reached.op];
  }
  return places;
}

/// Where one helper makes all calls, the lines that the subject came from stand behind it.
std::vector<Place> places_of(const std::vector<Reached>& all) {
  std::vector<Place> places = places_at(all, &Reached::inner);
  const std::vector<Place> outer = places_at(all, &Reached::outer);
  if (places.size() == 1 && outer.size() > 1)
    places.insert(places.end(), outer.begin(), outer.end());
  return places;
}

bool reduces(const Reached& reached) { return reached.op.find("reduce") != std::string::npos; }

/// What a finding points at: what is sent, where values or buffers are not those that were to be
/// sent; else what is reduced. Values at the start are sent before anything is reduced.
std::vector<SiteRef> sites_of(const Finding& finding, const std::vector<Reached>& all) {
  const bool initial = finding.code == Code::kInitialValue;
  const auto end = initial ? std::find_if(all.begin(), all.end(), reduces) : all.end();
  std::vector<SiteRef> sent, others;
  for (const Place& place : places_of({all.begin(), end})) {
    if (place.calls.count("broadcast") > 0) {
      sent.push_back(place.site);
      sent.back().role = "broadcasts";
    } else if (place.calls.count("barrier") == 0) {
      others.push_back(place.site);
    }
  }
  if (initial)
    return sent;
  return finding.code == Code::kBufferDiffers && !sent.empty() ? sent : others;
}

/// What its source says of itself, where nothing that it did has a line: the order, the length and
/// the shares of a sampler, and what would have reduced.
std::optional<SiteRef> source_of(const Run& run, const Finding& finding) {
  if (finding.code == Code::kOutsideBuckets)
    return declared_at(run, "reduces_at", "never reaches");
  if (finding.code == Code::kWrongLength)
    return declared_at(run, "length_at", "promises");
  const auto speaks_of = [&](const char* word) {
    return finding.cause.find(word) != std::string::npos;
  };
  const bool of_order = finding.code == Code::kNotReshuffled || speaks_of("seed") ||
                        speaks_of("order") || speaks_of("draws");
  if (auto orders = declared_at(run, "orders_at", "orders"); orders && of_order)
    return orders;
  return declared_at(run, "gives_at", "gives");
}

std::string in_words(const Place& place) {
  std::vector<std::string> calls;
  for (const auto& [op, count] : place.calls)
    calls.push_back(fmt::format("{} {}", count, op));
  return fmt::format("{} issues {} at {}:{}", place.site.function, fmt::join(calls, ", "),
                     place.site.file, place.site.line);
}

}  // namespace

std::string unseen_subject(const Case& cell, const Run& run) {
  if (!cell.of_subject || cell.kind == "sampler" || cell.scenario == "refusals")
    return {};
  for (const Rank rank : RankSet::all(cell.world_size)) {
    const bool seen =
        std::any_of(run.processes.begin(), run.processes.end(), [&](const Process& process) {
          return process.rank == rank && !process.beside &&
                 std::any_of(process.collectives.begin(), process.collectives.end(),
                             [&](const Collective& call) { return !is_of_host(process, call); });
        });
    if (!seen)
      return fmt::format("no collective of the subject was seen on rank {}", rank.value);
  }
  return {};
}

void add_lines(const Run& run, CaseReport& report) {
  const std::vector<Reached> all = reached_by_first_rank(run);
  const std::vector<Place> places = places_of(all);
  const auto defined = declared_at(run, "defined_at", "defines");
  for (Finding& finding : report.findings) {
    for (std::size_t i = 0; i < std::min(places.size(), kPlacesMax); ++i)
      finding.tell(EvidenceKind::kCall, {places[i].site.rank}, "{}", in_words(places[i])).site =
          places[i].site;
    if (defined)
      finding
          .tell(EvidenceKind::kRule, {}, "{} is defined at {}:{}", defined->function, defined->file,
                defined->line)
          .site = *defined;
    if (!finding.sites.empty())
      continue;
    finding.sites = sites_of(finding, all);
    if (finding.sites.size() > kPlacesMax)
      finding.sites.resize(kPlacesMax);
    const auto source = source_of(run, finding);
    if (finding.sites.empty() && source)
      finding.sites.push_back(*source);
    if (finding.sites.empty() && defined)
      finding.sites.push_back(*defined);
  }
}

void soften(const Case& cell, CaseReport& report) {
  if (!cell.tried || report.outcome == Outcome::kPass)
    return;
  std::string seen = report.reason;
  if (!report.findings.empty()) {
    const Finding& first = report.findings.front();
    seen = fmt::format("{}: {}", first.code, first.headline);
    if (!first.sites.empty())
      seen += fmt::format(" ({}:{})", first.sites.front().file, first.sites.front().line);
  }
  report.findings.clear();
  report.outcome = Outcome::kUndecided;
  report.required = false;
  report.reason = fmt::format("not declared: {}. Tried all the same: {}", cell.not_declared, seen);
}

}  // namespace lockstep
