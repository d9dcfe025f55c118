#include "checkers/exit/handled_exceptions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "harness/model/call_site.h"
#include "harness/model/coverage.h"
#include "harness/model/error_patterns.h"
#include "harness/model/failure.h"
#include "harness/model/group_view.h"

namespace lockstep::checkers {
namespace {

/// How loops, generators and programs end by rights.
bool ends_something(std::string_view text) {
  constexpr std::array<std::string_view, 5> kEnds{
      "StopIteration", "StopAsyncIteration", "GeneratorExit", "SystemExit", "KeyboardInterrupt"};
  return std::find(kEnds.begin(), kEnds.end(), text.substr(0, text.find(':'))) != kEnds.end();
}

/// Where the frame that handles it stands now; null if it is not known.
const Frame* handler_of(const StackSample& seen) {
  const Frame& handler = seen.raised_at.frames.back();
  const auto frame = std::find_if(seen.frames.begin(), seen.frames.end(), [&](const Frame& each) {
    return each.is_python() && each.module == handler.module && each.function == handler.function;
  });
  return frame == seen.frames.end() ? nullptr : &*frame;
}

/// It has made calls from there before: all of a program may stand under `except ImportError:`.
bool works_there(const Process& process, const Frame& handler) {
  for (const Collective& call : process.collectives) {
    if (&call == &process.collectives.back() || call.site >= process.sites.size())
      continue;
    const std::vector<Frame>& frames = process.sites[call.site].frames;
    if (std::any_of(frames.begin(), frames.end(), [&](const Frame& frame) {
          return frame.module == handler.module && frame.function == handler.function &&
                 frame.offset == handler.offset;
        }))
      return true;
  }
  return false;
}

/// A call before the one that it is in now failed or was given up: the exception may be of that.
bool was_let_down(const Process& process) {
  return std::any_of(process.collectives.begin(), process.collectives.end(),
                     [&](const Collective& call) {
                       return &call != &process.collectives.back() && !call.completion_unseen &&
                              (call.failed || !call.completed_ns);
                     });
}

/// "ValueError: no such label: 7 at data.py:20".
std::string in_words(const Handled& handled) {
  return first_line(handled.seen->handles) +
         at_site(site_of(handled.rank, handled.seen->raised_at.frames, "raised"));
}

void add_site(const Handled& handled, Finding& finding) {
  finding.add(site_of(handled.rank, handled.seen->raised_at.frames, "raised"));
}

/// Ranks that are about to fail, where others are not.
RankSet about_to_fail(const Run& run, const std::vector<Handled>& all) {
  RankSet ranks;
  for (const Handled& handled : all) {
    if (!handled.passes_on)
      return {};
    ranks.insert(handled.rank);
  }
  return ranks.size() < ranks_of(run).size() && journal_is_whole(run) ? ranks : RankSet{};
}

void convict(const RankSet& ranks, Finding& finding) {
  finding.culprits = ranks;
  finding.confidence = Confidence::kCertain;
  finding.affected = finding.affected.minus(ranks);
  for (SiteRef& site : finding.sites) {
    if (ranks.contains(site.rank))
      site.role = "culprit";
  }
}

}  // namespace

std::vector<Handled> handled_by(const Run& run) {
  std::vector<Handled> all;
  for (const Rank rank : ranks_of(run)) {
    const Process* const process = current_process(run, rank);
    const StackSample* last = nullptr;
    for (const StackSample& sample : run.stacks) {
      if (process != nullptr && sample.pid == process->pid && sample.tid == sample.pid &&
          (process->collectives.empty() || sample.at_ns >= process->collectives.back().issued_ns))
        last = &sample;
    }
    if (last == nullptr || last->handles.empty() || last->raised_at.frames.empty() ||
        says(last->handles, Says::kPeerGone))
      continue;
    const Frame* const handler = handler_of(*last);
    if (handler != nullptr && !works_there(*process, *handler))
      all.push_back(
          {rank, last,
           handler->in_finally && !ends_something(last->handles) && !was_let_down(*process)});
  }
  return all;
}

void tell_what_is_handled(const Run& run, Finding& finding) {
  const Family family = family_of(finding.code);
  const bool of_order =
      family == Family::kMismatch || family == Family::kWait || family == Family::kLoopExit;
  const std::vector<Handled> all = of_order ? handled_by(run) : std::vector<Handled>{};
  if (all.empty())
    return;
  if (finding.culprits.empty()) {
    if (const RankSet ranks = about_to_fail(run, all); !ranks.empty())
      convict(ranks, finding);
  }
  bool told = false;
  for (const Handled& handled : all) {
    finding
        .tell(EvidenceKind::kException, {handled.rank}, "{} waits while it handles {}",
              words({handled.rank}), first_line(handled.seen->handles))
        .at(site_of(handled.rank, handled.seen->raised_at.frames, "raised"));
    if (told || !(finding.culprits.empty() || finding.culprits.contains(handled.rank)))
      continue;
    told = true;
    add_site(handled, finding);
    if (finding.culprits.empty())
      continue;
    finding.also.push_back(Code::kRankDied);
    finding.cause =
        fmt::format("{} took {} out of its way; it {}", in_words(handled), words({handled.rank}),
                    handled.passes_on ? "waits in a `finally`, and fails as soon as that is done"
                                      : "waits in the code that handles it");
    if (handled.passes_on)
      finding.confidence = Confidence::kCertain;
  }
}

}  // namespace lockstep::checkers
