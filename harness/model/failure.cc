#include "harness/model/failure.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "harness/base/signal_name.h"
#include "harness/model/call_site.h"
#include "harness/model/ending.h"
#include "harness/model/error_patterns.h"
#include "harness/model/group_view.h"
#include "harness/model/recovery.h"
#include "harness/model/stack_patterns.h"

namespace lockstep {
namespace {

constexpr std::size_t kTextMax = 200;

bool was_in_a_call(const Raised& raised) {
  return any(raised.raised_at.frames, Sign::kDistributed);
}

/// Or else of a worker of its data loader, which it has connections to as well.
bool tells_of_a_peer(const Raised& raised) {
  return says(raised.text, Says::kPeerGone) &&
         (was_in_a_call(raised) || !in_data_loader(raised.raised_at.frames));
}

/// What it raises outside of any call after one has failed, and nothing was issued since, is what
/// it makes of that, in its own words: why the call failed is another rank's to tell.
bool tells_of_a_failed_call(const Run& run, const Raised& raised) {
  std::uint64_t issued_ns = 0, failed_ns = 0;
  for (const Process& process : run.processes) {
    for (const Collective& call : process.collectives) {
      if (process.pid != raised.pid || call.issued_ns > raised.at_ns)
        continue;
      issued_ns = std::max(issued_ns, call.issued_ns);
      if (call.failed)
        failed_ns = std::max(failed_ns, call.completed_ns.value_or(call.issued_ns));
    }
  }
  return failed_ns != 0 && issued_ns <= failed_ns && !was_in_a_call(raised);
}

bool had_failed_collective(const Run& run, Rank rank) {
  const Process* process = current_process(run, rank);
  return process != nullptr && std::any_of(process->collectives.begin(), process->collectives.end(),
                                           [&](const Collective& call) {
                                             return call.failed && !was_left_behind(*process, call);
                                           });
}

/// A member that had not come to this call by then.
Evidence where_it_was(const GroupView& group, const Member& member, std::uint64_t seq,
                      std::uint64_t at_ns) {
  const auto said = [&](std::string text, const Collective& call) {
    return evidence_of(EvidenceKind::kCall, {member.rank}, "rank {} {}", member.rank.value, text)
        .about(group.place(seq))
        .at(site_of(*member.process, call, "peer"));
  };
  if (const Collective* const call = member.at(seq))
    return said(fmt::format("came to it {:.1f} s later",
                            static_cast<double>(call->issued_ns - at_ns) / 1e9),
                *call);
  const Collective* const before = seq == 0 ? nullptr : member.at(seq - 1);
  return before == nullptr ? said("never came to it", Collective{})
                           : said(fmt::format("never came to it; its last call before was {} #{}",
                                              history::name_of(before->op), before->seq),
                                  *before);
}

/// Its last word was for a peer that is gone: SIGPIPE in the middle of a collective. (Elsewhere it
/// may be that nobody reads its output.)
bool wrote_to_nobody(const Run& run, const ProcessEnd& end) {
  const Process* process = current_process(run, *end.rank);
  return end.signal == SIGPIPE && process != nullptr &&
         std::any_of(process->collectives.begin(), process->collectives.end(),
                     [&](const Collective& c) {
                       return c.issued_ns < end.at_ns && !c.completed_ns && !c.completion_unseen;
                     });
}

Evidence it_had_waited_in(const GroupView& group, const Collective& call, Rank rank) {
  return evidence_of(EvidenceKind::kWait, {rank}, "it had waited in {} for others",
                     group.label(call))
      .about(group.place(call));
}

/// The first call that was put on its device and that a member never came to.
void say_what_its_device_waited_for(const std::vector<GroupView>& groups, Failure& failure) {
  const GroupView* in = nullptr;
  const Collective* first = nullptr;
  const auto never_came = [&](const Member& member, std::uint64_t seq) {
    return member.rank != failure.rank && member.is_complete && member.issued <= seq;
  };
  for (const GroupView& group : groups) {
    const Member* const member = group.member(failure.rank);
    for (std::uint64_t seq = member == nullptr ? 0 : member->first_seq;
         member != nullptr && seq < member->end_seq(); ++seq) {
      const Collective* const call = member->at(seq);
      if (call == nullptr || !call->completion_unseen ||
          (first != nullptr && call->issued_ns >= first->issued_ns) ||
          std::none_of(group.members.begin(), group.members.end(),
                       [&](const Member& other) { return never_came(other, seq); }))
        continue;
      first = call;
      in = &group;
    }
  }
  if (first == nullptr)
    return;
  failure.waited.push_back(it_had_waited_in(*in, *first, failure.rank));
  for (const Member& member : in->members) {
    if (never_came(member, first->seq))
      failure.waited.push_back(where_it_was(*in, member, first->seq, failure.at_ns));
  }
}

/// Who raises, or ends itself, after such a wait for ranks that have not come does so because of
/// them, whatever it says: a time of its own ran out, or it put the error of the call into its own
/// words.
void say_what_it_waited_for(const std::vector<GroupView>& groups, Failure& failure) {
  if (says(failure.exception, Says::kWatchdog)) {
    say_what_its_device_waited_for(groups, failure);
    return;
  }
  constexpr std::uint64_t kWaitedNs = 1'000'000'000;
  const GroupView* in = nullptr;
  const Collective* last = nullptr;  // That its main thread issued.
  for (const GroupView& group : groups) {
    const Member* const member = group.member(failure.rank);
    for (std::uint64_t seq = member == nullptr ? 0 : member->first_seq;
         member != nullptr && seq < member->end_seq(); ++seq) {
      const Collective* const call = member->at(seq);
      const bool by_main =
          call != nullptr && issuer_of(*member->process, *call) == member->process->pid;
      if (by_main && (last == nullptr || call->issued_ns > last->issued_ns)) {
        last = call;
        in = &group;
      }
    }
  }
  if (last == nullptr || last->completion_unseen)
    return;
  for (const Member* const member = in->member(failure.rank); last->failed && last->seq > 0;) {
    const Collective* const before = member->at(last->seq - 1);
    if (before == nullptr || !before->failed)
      break;
    last = before;  // What it did there afterwards had to fail.
  }
  const std::uint64_t until = std::min(last->completed_ns.value_or(failure.at_ns), failure.at_ns);
  // (It may complete while the process that gave it up is being torn down.)
  const bool done = last->completed_ns && *last->completed_ns < failure.at_ns && !last->failed;
  if (done || until < last->issued_ns + kWaitedNs)
    return;
  for (const Member& member : in->members) {
    const Collective* const call = member.at(last->seq);
    const bool came = call != nullptr ? call->issued_ns < until : member.issued > last->seq;
    if (member.rank != failure.rank && member.is_complete && !came)
      failure.waited.push_back(where_it_was(*in, member, last->seq, until));
  }
  if (failure.waited.empty())
    return;
  failure.waited.insert(failure.waited.begin(), it_had_waited_in(*in, *last, failure.rank));
  failure.after_a_peer = true;
}

/// How it ended is not known, and the command that started it came to a bad end.
bool may_have_failed(const Run& run, const ProcessEnd& end) {
  return !end.our_signal && !end.signal && !end.exit_status &&
         std::any_of(run.ends.begin(), run.ends.end(), [](const ProcessEnd& other) {
           return other.role == Role::kOther && !other.our_signal && other.failed();
         });
}

/// As a launcher ends the other ranks when one has failed, a time limit or a scheduler all of them.
std::optional<Sender> who_ended(const ProcessEnd& end, bool as_asked) {
  const bool asks = end.signal == SIGTERM || end.signal == SIGINT || end.signal == SIGHUP;
  return as_asked ? end.sender : asks ? std::optional(Sender{}) : std::nullopt;
}

/// A launcher ends the other ranks when one has failed.
bool may_be_the_launchers(const Run& run, const ProcessEnd& end) {
  const bool asked = end.signal == SIGTERM || end.signal == SIGINT || end.signal == SIGKILL;
  const bool launched = std::any_of(run.starts.begin(), run.starts.end(),
                                    [](const auto& start) { return start.role == Role::kOther; });
  return asked && launched && !was_left_out(run, end) &&
         std::any_of(run.ends.begin(), run.ends.end(), [&](const ProcessEnd& other) {
           return other.role == Role::kRank && other.rank != end.rank && !other.our_signal &&
                  other.failed() && other.at_ns <= end.at_ns;
         });
}

/// Where a process that aborted was. Of an exception that nobody caught, the line that threw it;
/// none where it had left that line already.
std::optional<SiteRef> aborted_at(const Run& run, const ProcessEnd& end) {
  if (end.signal != SIGABRT)
    return std::nullopt;
  const std::vector<Frame> frames = abort_of(run, end.pid).frames;
  auto caller = frames.begin();
  if (any(frames, Sign::kTerminate))
    caller = std::find_if(frames.begin(), frames.end(),
                          [](const Frame& frame) { return is(frame, Sign::kThrow); });
  return caller == frames.end() ? std::nullopt
                                : site_of(*end.rank, {caller, frames.end()}, "raised");
}

std::string printed_last(const ProcessEnd& end) {
  return end.last_line.empty() ? "" : fmt::format("it printed last: {}", end.last_line);
}

/// It caught what it printed there, and issued something afterwards.
bool went_on(const Run& run, const Raised& raised) {
  return std::any_of(run.processes.begin(), run.processes.end(), [&](const Process& process) {
    return process.pid == raised.pid &&
           std::any_of(process.collectives.begin(), process.collectives.end(),
                       [&](const Collective& call) { return call.issued_ns > raised.at_ns; });
  });
}

/// The exceptions that a process printed last.
std::vector<Failure> raised_by(const Run& run, const std::vector<GroupView>& groups,
                               const ProcessEnd& end) {
  std::vector<Failure> failures;
  for (const Raised& raised : run.raised) {
    if (raised.rank != end.rank || raised.pid != end.pid || raised.text == kTerminated ||
        (!end.failed() && went_on(run, raised)))
      continue;
    const auto site = site_of(*raised.rank, raised.raised_at.frames, "raised");
    Failure& failure = failures.emplace_back(
        Failure{.rank = *raised.rank,
                .at_ns = raised.at_ns,
                .exception = raised.text,
                .after_a_peer = tells_of_a_peer(raised) || tells_of_a_failed_call(run, raised),
                .raised = site ? site : aborted_at(run, end),
                .found_out = raised.found_out});
    say_what_it_waited_for(groups, failure);
  }
  return failures;
}

}  // namespace

std::string in_words(const Failure& failure, std::size_t ranks) {
  const char* const was = ranks == 1 ? "was" : "were";
  switch (failure.how) {
    case Ended::kInGlooTeardown:
      return fmt::format(
          "{} ended by SIGABRT in Gloo's teardown: its process group outlived Python", was);
    case Ended::kSignal:
      return fmt::format("{} killed by {}", was, signal_name(failure.status));
    case Ended::kStatus:
      return fmt::format("exited with status {}", failure.status);
    case Ended::kCleanly:
    case Ended::kUnknown:
      break;
  }
  return fmt::format("raised: {}", first_line(failure.exception));
}

EvidenceKind kind_of(const Failure& failure) {
  const bool ended = failure.how != Ended::kUnknown && failure.how != Ended::kCleanly;
  return ended ? EvidenceKind::kEnd : EvidenceKind::kException;
}

bool is_one_mistake(const Failure& a, const Failure& b) {
  if (a.exception.empty() || a.exception == b.exception)
    return !a.exception.empty();
  if (!a.raised || !b.raised || a.raised->file != b.raised->file ||
      a.raised->line != b.raised->line)
    return false;
  const std::string type = a.exception.substr(0, a.exception.find(':'));
  return (speaks_of_its_arguments(type) && type == b.exception.substr(0, b.exception.find(':'))) ||
         without_numbers(first_line(a.exception), false).text ==
             without_numbers(first_line(b.exception), false).text;
}

RankSet odd_ones_out(const std::vector<Failure>& failures) {
  std::map<std::string, RankSet> sayings;
  for (const Failure& failure : failures) {
    const Saying saying = without_numbers(first_line(failure.exception), true);
    if (saying.numbers < 2 || !is_one_mistake(failure, failures.front()))
      return {};
    sayings[saying.text].insert(failure.rank);
  }
  if (sayings.size() != 2)
    return {};
  const RankSet &one = sayings.begin()->second, &other = sayings.rbegin()->second;
  if (one.size() == other.size())
    return {};
  return one.size() < other.size() ? one : other;
}

const Raised* end_of_a_thread(const Run& run, std::int32_t pid, std::uint64_t cutoff_ns) {
  const auto raised = std::find_if(run.raised.begin(), run.raised.end(), [&](const Raised& each) {
    return each.pid == pid && each.at_ns <= cutoff_ns && ended_a_thread(each.raised_at.frames);
  });
  return raised == run.raised.end() ? nullptr : &*raised;
}

void tell_end_of_a_thread(Finding& finding, Rank rank, const Raised& raised) {
  const auto site = site_of(rank, raised.raised_at.frames, "raised");
  finding
      .tell(EvidenceKind::kException, {rank}, "a thread of rank {} was ended by {}", rank.value,
            first_line(raised.text))
      .at(site);
  finding.add(site);
}

std::string first_line(const std::string& text) {
  const std::string line = text.substr(0, text.find('\n'));
  return line.size() > kTextMax ? line.substr(0, kTextMax) + "..." : line;
}

namespace {

std::vector<Failure> failures_of_requests(const Run& run) {
  std::vector<Failure> failures;
  for (const Request& request : run.requests) {
    if (request.role != Role::kRank || !request.rank || request.outcome != "failed" ||
        // The checker second-derivative tells of it.
        (run.plan.options.count("penalty") > 0 && says(request.text, Says::kNoDerivative)))
      continue;
    failures.push_back({.rank = *request.rank,
                        .at_ns = request.answered_ns.value_or(request.at_ns),
                        .exception = request.text,
                        .after_a_peer = says(request.text, Says::kPeerGone),
                        .raised = site_of(*request.rank, request.raised_at.frames, "raised")});
  }
  return failures;
}

}  // namespace

std::vector<Failure> failures_of(const Run& run, const std::vector<GroupView>& groups) {
  std::vector<Failure> failures;
  const auto add = [&](Failure failure) {
    for (Failure& known : failures) {
      if (known.rank == failure.rank) {
        if (failure.at_ns < known.at_ns)
          known = std::move(failure);
        return;
      }
    }
    failures.push_back(std::move(failure));
  };
  for (Failure& failure : failures_of_requests(run))
    add(std::move(failure));
  for (const ProcessEnd& end : run.ends) {
    const Ending ending = ending_of(run, end);
    const bool may_have = may_have_failed(run, end);
    if (end.role != Role::kRank || !end.rank || !(ending.failed_by_itself() || may_have) ||
        was_meant(run, end))
      continue;
    Failure failure{.rank = *end.rank,
                    .at_ns = ending.as_asked ? end.asked_ns : end.at_ns,
                    .how = ending.how,
                    .status = end.signal ? *end.signal : end.exit_status.value_or(0),
                    .after_a_peer = ending.as_asked,
                    .aborted = end.signal == SIGABRT,
                    .ended_by = who_ended(end, ending.as_asked)};
    if (ending.how == Ended::kInGlooTeardown) {
      failure.exception = in_words(failure);  // Its reason is known.
      add(std::move(failure));
      continue;
    }
    for (Failure& raised : raised_by(run, groups, end))
      add(std::move(raised));
    if (may_have)
      continue;
    // Or it ended itself: SIGALRM comes from a timer of its own.
    const bool hit =
        end.signal && *end.signal != SIGABRT && *end.signal != SIGPIPE && *end.signal != SIGALRM;
    failure.after_a_peer |= (!hit && had_failed_collective(run, *end.rank)) ||
                            wrote_to_nobody(run, end) || may_be_the_launchers(run, end);
    failure.raised = aborted_at(run, end);
    failure.found_out = printed_last(end);
    if (!hit)
      say_what_it_waited_for(groups, failure);
    add(std::move(failure));
  }
  if (const std::optional<std::uint64_t> ended_ns = ended_from_outside_ns(run)) {
    for (Failure& failure : failures)
      failure.after_a_peer = failure.after_a_peer || failure.at_ns >= *ended_ns;
  }
  // Whoever failed for a reason of its own comes before whoever may only have noticed.
  std::stable_sort(failures.begin(), failures.end(), [](const Failure& a, const Failure& b) {
    return std::tuple(a.after_a_peer, a.aborted, a.at_ns) <
           std::tuple(b.after_a_peer, b.aborted, b.at_ns);
  });
  return failures;
}

}  // namespace lockstep
