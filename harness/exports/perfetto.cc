#include "harness/exports/perfetto.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "harness/exports/protobuf.h"
#include "harness/exports/replay.h"
#include "harness/history/format.h"
#include "harness/model/call_site.h"
#include "harness/model/job.h"
#include "harness/model/matching.h"

namespace lockstep::exports {
namespace {

// Numbers of fields: protos/perfetto/trace of google/perfetto.
namespace packet {
constexpr std::uint32_t kTimestamp = 8, kSequence = 10, kEvent = 11, kTrack = 60;
}
namespace track {
constexpr std::uint32_t kId = 1, kName = 2, kParent = 5;
}
namespace event {
constexpr std::uint32_t kAnnotation = 4, kType = 9, kTrack = 11, kCategory = 22, kName = 23,
                        kFlow = 47;
constexpr std::uint64_t kBegin = 1, kEnd = 2, kInstant = 3;
}  // namespace event
namespace annotation {
constexpr std::uint32_t kText = 6, kName = 10;
}

/// Text of a message is UTF-8: what is none in a name of the user's is not shown.
std::string utf8(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const std::size_t length = byte < 0x80                   ? 1
                               : byte >= 0xf0 && byte < 0xf5 ? 4
                               : byte >= 0xe0 && byte < 0xf0 ? 3
                               : byte >= 0xc2 && byte < 0xe0 ? 2
                                                             : 0;
    bool whole = length > 0 && i + length <= text.size();
    for (std::size_t k = 1; whole && k < length; ++k)
      whole = (static_cast<unsigned char>(text[i + k]) & 0xc0U) == 0x80U;
    out += whole ? text.substr(i, length) : "?";
    i += whole ? length : 1;
  }
  return out;
}

class Trace {
 public:
  std::uint64_t add_track(const std::string& name, std::uint64_t parent) {
    Message about;
    about.number(track::kId, ++tracks_).text(track::kName, utf8(name));
    if (parent > 0)
      about.number(track::kParent, parent);
    trace_.message(1, Message().number(packet::kSequence, 1).message(packet::kTrack, about));
    return tracks_;
  }

  void add_event(std::uint64_t at_ns, std::uint64_t type, std::uint64_t track, Message about) {
    about.number(event::kType, type).number(event::kTrack, track);
    // Of one instant the end comes first: slices of a track do not overlap.
    events_.emplace(std::pair(at_ns, type == event::kEnd ? 0 : 1), std::move(about));
  }

  std::string bytes() {
    for (const auto& [at, about] : events_)
      trace_.message(1, Message()
                            .number(packet::kTimestamp, at.first)
                            .number(packet::kSequence, 1)
                            .message(packet::kEvent, about));
    return trace_.bytes();
  }

 private:
  Message trace_{};
  std::uint64_t tracks_{};
  std::multimap<std::pair<std::uint64_t, int>, Message> events_{};
};

Message named(const std::string& name, const std::string& category) {
  Message about;
  about.text(event::kCategory, category).text(event::kName, utf8(name));
  return about;
}

void annotate(Message& about, const std::string& name, const std::string& text) {
  if (!text.empty())
    about.message(event::kAnnotation,
                  Message().text(annotation::kText, utf8(text)).text(annotation::kName, name));
}

/// Equal for the calls that belong together.
std::uint64_t flow_of(std::size_t world, std::size_t group, std::int32_t self,
                      const Collective& call) {
  const bool message = history::is_point_to_point(call.op);
  const bool sends = call.op == history::Op::kSend;
  const std::string key = fmt::format(
      "{} {} {} {} {}", world, group, call.seq,
      message ? fmt::format("{} {}", sends ? self : call.root, sends ? call.root : self) : "",
      message ? call.tag : -1);
  return history::hash_bytes(key.data(), key.size()) | 1U;
}

/// The calls of one rank in one group, in as many tracks as there are calls at one time.
class Lanes {
 public:
  Lanes(Trace& trace, std::string name, std::uint64_t parent)
      : trace_(trace), name_(std::move(name)), parent_(parent) {}

  std::uint64_t free_at(std::uint64_t begin_ns, std::uint64_t end_ns) {
    for (auto& [track, until_ns] : lanes_) {
      if (until_ns <= begin_ns) {
        until_ns = end_ns;
        return track;
      }
    }
    lanes_.emplace_back(trace_.add_track(name_, parent_), end_ns);
    return lanes_.back().first;
  }

 private:
  Trace& trace_;
  std::string name_;
  std::uint64_t parent_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> lanes_{};  ///< Track, and in use until when.
};

class Writer {
 public:
  Writer(const Report& report, const std::vector<World>& worlds)
      : report_(report), worlds_(worlds) {}

  Result<std::string> made() {
    for (std::size_t i = 0; i < worlds_.size(); ++i)
      add_world(i);
    if (calls_ == 0)
      return Error{Error::Kind::kUsage,
                   "there is nothing to draw: have no calls on record, need those of a job",
                   "name the directory of a run, of one case of a suite, or of dumps"};
    for (const Finding& finding : report_.findings)
      add(finding);
    for (const CaseReport& result : report_.cases) {
      for (const Finding& finding : result.findings)
        add(finding);
    }
    return trace_.bytes();
  }

 private:
  void add_world(std::size_t number) {
    const Job job(worlds_[number].run);
    const std::string before =
        worlds_.size() > 1 ? fmt::format("world {}, ", number + 1) : std::string();
    for (const Rank rank : ranks_of(job.run()))
      ranks_[{number, rank}] = trace_.add_track(fmt::format("{}rank {}", before, rank.value), 0);
    const std::vector<GroupView>& groups = job.groups();
    for (std::size_t i = 0; i < groups.size(); ++i) {
      for (const Member& member : groups[i].members)
        add_member(number, i, groups[i], member);
    }
  }

  void add_member(std::size_t world, std::size_t number, const GroupView& group,
                  const Member& member) {
    std::vector<const Collective*> calls;
    for (const Collective& call : member.process->collectives) {
      if (call.group == member.group)
        calls.push_back(&call);
    }
    std::stable_sort(calls.begin(), calls.end(),
                     [](const auto* a, const auto* b) { return a->issued_ns < b->issued_ns; });
    Lanes lanes(trace_, "group " + group.label(), ranks_[{world, member.rank}]);
    for (const Collective* const call : calls) {
      std::optional<std::uint64_t> end_ns = call->completed_ns;
      if (!end_ns && call->completion_unseen)
        end_ns = call->returned_ns;
      const std::uint64_t until_ns = end_ns ? std::max(*end_ns, call->issued_ns + 1) : kNeverNs;
      const std::uint64_t track = lanes.free_at(call->issued_ns, until_ns);
      Message about = named(group.label(*call), "collective");
      about.fixed(event::kFlow, flow_of(world, number, member.about().my_rank, *call));
      annotate(about, "call", describe(*call));
      annotate(about, "line", site_text(*member.process, *call));
      annotate(about, "state", call->failed ? "failed" : end_ns ? "" : "never completed");
      trace_.add_event(call->issued_ns, event::kBegin, track, std::move(about));
      if (end_ns)
        trace_.add_event(until_ns, event::kEnd, track, {});
      last_ns_ = std::max({last_ns_, call->issued_ns, end_ns.value_or(0)});
      ++calls_;
    }
  }

  static std::string site_text(const Process& process, const Collective& call) {
    const auto site = site_of(process, call, "");
    return site ? fmt::format("{}:{}", site->file, site->line) : "";
  }

  /// On a track of its own, and on those of the ranks that it convicts.
  void add(const Finding& finding) {
    const std::string name = fmt::format("{}: {}", text_of(finding.code), finding.headline);
    const std::uint64_t at_ns =
        finding.at_ns > 0 && finding.at_ns < kNeverNs ? finding.at_ns : last_ns_;
    Message about = named(name, "finding");
    for (const SiteRef& site : finding.sites)
      annotate(about, fmt::format("rank {} ({})", site.rank.value, site.role),
               fmt::format("{}:{}", site.file, site.line));
    if (findings_ == 0)
      findings_ = trace_.add_track("findings", 0);
    trace_.add_event(at_ns, event::kInstant, findings_, about);
    for (const auto& [key, track] : ranks_) {
      if (finding.culprits.contains(key.second) && key.first + 1 == worlds_.size())
        trace_.add_event(at_ns, event::kInstant, track, named(name, "finding"));
    }
  }

  const Report& report_;
  const std::vector<World>& worlds_;
  Trace trace_{};
  std::map<std::pair<std::size_t, Rank>, std::uint64_t> ranks_{};  ///< Their tracks.
  std::uint64_t findings_{}, last_ns_{}, calls_{};
};

}  // namespace

Result<std::string> render_perfetto(const Report& report, const std::vector<World>& worlds) {
  return Writer(report, worlds).made();
}

}  // namespace lockstep::exports
