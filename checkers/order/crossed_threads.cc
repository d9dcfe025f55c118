#include "checkers/order/crossed_threads.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "harness/history/format.h"
#include "harness/model/call_site.h"
#include "harness/model/coverage.h"
#include "harness/model/matching.h"
#include "harness/model/ranks_by_text.h"
#include "harness/model/stack_patterns.h"

namespace lockstep::checkers {
namespace {

constexpr std::uint64_t kBefore = 8;  // Calls before the place that may have been recorded wrongly.
constexpr std::size_t kSitesMax = 4;

/// The last call of each thread that issued on the group around the place.
std::map<std::int32_t, const Collective*> last_by_thread(const Member& member, std::uint64_t seq) {
  std::map<std::int32_t, const Collective*> last;
  for (std::uint64_t s = seq > kBefore ? seq - kBefore : 0; s < member.end_seq(); ++s) {
    if (const Collective* const call = member.at(s))
      last[issuer_of(*member.process, *call)] = call;
  }
  return last;
}

/// It ended with the job, or was given up, in a call from there on.
bool came_to_nothing(const Member& member, std::uint64_t seq) {
  for (std::uint64_t s = seq; s < member.end_seq(); ++s) {
    const Collective* const call = member.at(s);
    if (call != nullptr && (call->failed || (!call->completed_ns && !call->completion_unseen)))
      return true;
  }
  return false;
}

/// The line of the user's, or of the library that made the thread.
std::optional<SiteRef> place_of(const Member& member, const Collective& call) {
  auto site = site_of(*member.process, call, "peer");
  if (site || call.site >= member.process->sites.size())
    return site;
  const auto& frames = member.process->sites[call.site].frames;
  const auto made = std::find_if(frames.rbegin(), frames.rend(), [](const Frame& frame) {
    return frame.line > 0 && is(frame, Sign::kPackage);
  });
  if (made != frames.rend())
    site = SiteRef{member.rank, "peer", made->file, made->line, made->function};
  return site;
}

}  // namespace

void say_what_threads_did(const RankSet& ranks, Finding& finding) {
  finding.tell(EvidenceKind::kProcess, ranks,
               "two threads of {} issue on one group: their order is chance", words(ranks));
  finding.help = "give the thread a group of its own (dist.new_group), the same on all ranks";
}

std::optional<Finding> crossed_threads(const Run& run, const GroupView& group, std::uint64_t seq) {
  Finding finding;
  RankSet threaded;
  EvidenceOfRanks lines;
  bool nothing = false;
  for (const Member& member : group.members) {
    nothing |= came_to_nothing(member, seq);
    const auto calls = last_by_thread(member, seq);
    finding.affected.insert(member.rank);
    if (const Collective* const call = member.at(seq))
      finding.at_ns = std::max(finding.at_ns, call->issued_ns);
    if (calls.size() < 2)
      continue;
    threaded.insert(member.rank);
    for (const auto& [thread, call] : calls) {
      lines.add(evidence_of(EvidenceKind::kCall, {member.rank}, "{} thread: {}",
                            thread == member.process->pid ? "its main" : "another", describe(*call))
                    .about(group.place(*call))
                    .at(place_of(member, *call)));
      const auto site = site_of(*member.process, *call, "peer");
      if (site && threaded.size() == 1 && finding.sites.size() < kSitesMax)
        finding.sites.push_back(*site);
    }
  }
  if (threaded.empty() || !nothing || !journal_is_whole(run))
    return std::nullopt;
  finding.code = Code::kSwapped;
  finding.group = group.label();
  finding.seq = seq;
  finding.op = std::string(history::name_of(group.members.front().at(seq) == nullptr
                                                ? history::Op::kUnknown
                                                : group.members.front().at(seq)->op));
  finding.confidence = Confidence::kLikely;
  finding.headline = fmt::format(
      "two threads of {} call on group {} at once, and from #{} on the "
      "order of their calls is not that of all ranks",
      words(threaded), group.label(), seq);
  say_what_threads_did(threaded, finding);
  lines.tell(finding);
  return finding;
}

}  // namespace lockstep::checkers
