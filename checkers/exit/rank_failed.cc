#include "checkers/exit/rank_failed.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "checkers/exit/descriptor_growth.h"
#include "checkers/exit/host_gone.h"
#include "checkers/exit/leftovers.h"
#include "checkers/exit/rank_left.h"
#include "checkers/hang/expired_waits.h"
#include "checkers/order/lines_part.h"
#include "harness/base/signal_name.h"
#include "harness/history/hosts.h"
#include "harness/history/rank_places.h"
#include "harness/model/call_site.h"
#include "harness/model/coverage.h"
#include "harness/model/ending.h"
#include "harness/model/error_patterns.h"
#include "harness/model/failure.h"
#include "harness/model/group_view.h"
#include "harness/model/recovery.h"

namespace lockstep::checkers {
namespace {

constexpr std::size_t kEvidenceMax = 8;

/// Who started the rank made nothing of it: the command that started all of them, or one of its
/// own.
bool was_hidden(const Run& run, Rank rank) {
  return std::any_of(run.ends.begin(), run.ends.end(), [&](const ProcessEnd& end) {
    const bool of_its_own =
        end.role == Role::kBeside && end.rank == rank && history::has_no_group(run, end.pid);
    return (history::is_command(run, end.pid) || of_its_own) && !end.our_signal &&
           end.exit_status == 0;
  });
}

/// What a program says of its arguments, which are the same on all ranks: status 2, before any rank
/// had a group. A launcher may have ended the others before they came to say it too; one that we
/// had to end, or that ended in another way, had not refused them.
bool refused_its_arguments(const Run& run, const Failure& first) {
  const bool usage = std::any_of(run.ends.begin(), run.ends.end(), [&](const ProcessEnd& end) {
    return end.rank == first.rank && !end.our_signal && end.exit_status == 2;
  });
  const bool others_went_on =
      std::any_of(run.ends.begin(), run.ends.end(), [](const ProcessEnd& end) {
        return end.role == Role::kRank && (end.our_signal || end.exit_status.value_or(2) != 2);
      });
  return usage && !others_went_on &&
         std::all_of(run.processes.begin(), run.processes.end(),
                     [](const Process& process) { return process.groups.empty(); });
}

std::string help_with_arguments(const Plan& plan) {
  const bool old_launcher =
      std::any_of(plan.command.begin(), plan.command.end(), [](const std::string& word) {
        return word.find("torch.distributed.launch") != std::string::npos;
      });
  return old_launcher ? "torch.distributed.launch passes --local-rank=N: accept that spelling too "
                        "(parser.add_argument('--local-rank', '--local_rank', type=int)), or start "
                        "with torchrun and read LOCAL_RANK"
                      : "see what the program printed about its arguments";
}

/// All others ended by themselves as the first did, for a reason that nobody saw: a launcher tells
/// of one exception (mp.spawn), and it may be that of all. Empty if anybody ended otherwise.
RankSet ended_alike_unheard(const Run& run, const std::vector<Failure>& failures) {
  const auto status_of = [&](Rank rank) -> std::optional<std::int32_t> {
    for (const ProcessEnd& end : run.ends) {
      if (end.role == Role::kRank && end.rank == rank && !end.our_signal)
        return end.exit_status;
    }
    return std::nullopt;
  };
  const Failure& first = failures.front();
  RankSet unheard;
  for (const Rank rank : ranks_of(run)) {
    const auto failure = std::find_if(failures.begin(), failures.end(),
                                      [&](const Failure& f) { return f.rank == rank; });
    if (rank == first.rank)
      continue;
    if (failure == failures.end() || failure->after_a_peer || !failure->exception.empty() ||
        !status_of(rank) || status_of(rank) != status_of(first.rank))
      return {};
    unheard.insert(rank);
  }
  return first.exception.empty() ? RankSet{} : unheard;
}

/// By whoever ended it; null if that is not known to have raised.
const Raised* raised_by_its_end(const Run& run, const Failure& first) {
  const auto found = std::find_if(run.raised.begin(), run.raised.end(), [&](const Raised& raised) {
    return first.ended_by->pid == raised.pid;
  });
  return found == run.raised.end() ? nullptr : &*found;
}

/// Nobody failed by itself: who ended them, why, and where each of them was.
void add_who_ended_it(const Run& run, const Failure& first, Finding& finding) {
  const std::string by = first.ended_by->pid == 0 ? "somebody" : history::words_of(*first.ended_by);
  finding.tell(EvidenceKind::kEnd, {first.rank}, "{}",
               first.aborted        ? fmt::format("{} had asked it to end", by)
               : first.after_a_peer ? fmt::format("{} sent the signal", by)
                                    : "somebody sent the signal to them: a time limit, a "
                                      "scheduler, a person");
  for (const Rank rank : ranks_of(run)) {
    if (finding.evidence.size() < kEvidenceMax)
      tell_last_call(run, rank, "ended", finding);
  }
}

/// Of a store that is gone, though rank 0, which has it as a rule, was there: the server closes the
/// connection, too, of who asks for something that it cannot do.
void say_of_whom_it_may_speak(const Run& run, const Failure& first, Finding& finding) {
  if (says(first.exception, Says::kPairClosed)) {
    finding.tell(EvidenceKind::kException, {first.rank},
                 "rank {} says that of itself: a wait of its own, which was not seen, had "
                 "expired before, and Gloo then closes all connections of the group",
                 first.rank.value);
    return;
  }
  const Rank host{0};
  const bool of_a_crash = says(first.exception, Says::kServerGone);
  const Collective* const call =
      of_a_crash && first.rank != host ? at_work(run, host, first.at_ns) : nullptr;
  if (call == nullptr) {
    finding.tell(EvidenceKind::kException, {first.rank},
                 "it may speak of another rank; none was seen to end before");
    return;
  }
  finding
      .tell(EvidenceKind::kCall, {host},
            "rank 0, which has the store as a rule, had not crashed: its process lived, and {} {} "
            "#{}",
            call->issued_ns > first.at_ns ? "later came to" : "was in", history::name_of(call->op),
            call->seq)
      .about(place_of(*current_process(run, host), *call))
      .at(site_of(*current_process(run, host), *call, "peer"));
  finding.help =
      "the store closes the connection of who asks for what it cannot do: add() on a key whose "
      "value is no number, for one";
}

/// Who started it was killed before: the store may have gone with it, or somebody who waits.
void add_its_launcher(const Run& run, const Failure& first, Finding& finding) {
  const LauncherEnd* const killed = launcher_killed(run);
  if (killed != nullptr && killed->at_ns <= first.at_ns)
    finding.tell(EvidenceKind::kEnd, killed->ranks, "{} {:.1f} s before that, while {} lived",
                 in_words(*killed), static_cast<double>(first.at_ns - killed->at_ns) / 1e9,
                 words(killed->ranks));
}

/// What it had waited for, what followed, what hid it, and where the first one was.
void add_evidence(const Run& run, const std::vector<Failure>& failures, const RankSet& alike,
                  const RankSet& unheard, Finding& finding) {
  const Failure& first = failures.front();
  add_its_launcher(run, first, finding);
  finding.evidence.insert(finding.evidence.end(), first.waited.begin(), first.waited.end());
  finding.evidence.resize(std::min(finding.evidence.size(), kEvidenceMax));
  for (const Failure& failure : failures) {
    if (!alike.contains(failure.rank)) {
      ++finding.consequences;
      if (finding.evidence.size() < kEvidenceMax)
        finding.tell(kind_of(failure), {failure.rank}, "rank {} {} after it", failure.rank.value,
                     in_words(failure));
    }
  }
  if (was_hidden(run, first.rank)) {
    finding.also.push_back(Code::kHiddenFailure);
    finding.tell(EvidenceKind::kEnd, {}, kHidden);
  }
  if (!unheard.empty())
    finding.tell(EvidenceKind::kEnd, unheard,
                 "{} ended with the same status, and what raised there was not seen",
                 words(unheard));
  if (!first.found_out.empty())
    finding.tell(EvidenceKind::kException, {first.rank}, "{}", first.found_out);
  if (const std::string late = noticed_late(run, first.rank); !late.empty()) {
    finding.also.push_back(Code::kLauncherWaitsInOrder);
    finding.tell(EvidenceKind::kProcess, {first.rank}, "{}", late);
  }
  OpenDescriptors open;
  if (says(first.exception, Says::kNoDescriptor)) {
    open = descriptors_of(run, first.rank);
    std::move(open.lines.begin(), open.lines.end(), std::back_inserter(finding.evidence));
    finding.help = kHelpWithDescriptors;
  } else if (first.how == Ended::kInGlooTeardown) {
    finding.help = kHelpWithTeardown;
  }
  const bool was_ended = first.ended_by && (first.after_a_peer || alike.size() > 1);
  if (was_ended)
    add_who_ended_it(run, first, finding);
  else if (first.after_a_peer && first.waited.empty())
    say_of_whom_it_may_speak(run, first, finding);
  const Process* process = current_process(run, first.rank);
  if (finding.sites.empty() && !was_ended && process != nullptr && !process->collectives.empty())
    tell_last_call(run, first.rank, "failed", finding);
  finding.add(open.opened);
}

/// Whoever raises over what it got may be innocent of it: it was another rank's to send.
std::optional<Evidence> got_another_call(const Job& job, const Failure& first) {
  const Run& run = job.run();
  if (first.exception.empty() || first.after_a_peer || !run.plan.scenario.empty())
    return std::nullopt;
  for (const GroupView& group : job.groups()) {
    if (auto got = may_have_got_another_call(run, group, first.rank))
      return got;
  }
  return std::nullopt;
}

/// Clocks of hosts may differ by more than that: another one may have failed before.
bool may_not_be_first(const Run& run, const std::vector<Failure>& failures, const RankSet& alike) {
  const auto host_of = [&](Rank rank) {
    const Process* const process = current_process(run, rank);
    return process == nullptr ? std::string() : process->host;
  };
  const Failure& first = failures.front();
  return run.clock_error_ns > 0 &&
         std::any_of(failures.begin(), failures.end(), [&](const Failure& failure) {
           return !failure.after_a_peer && !alike.contains(failure.rank) &&
                  host_of(failure.rank) != host_of(first.rank) &&
                  failure.at_ns < first.at_ns + run.clock_error_ns;
         });
}

Finding died(const Job& job, bool whole) {
  const Run& run = job.run();
  const std::vector<Failure>& failures = job.failures();
  const Failure& first = failures.front();
  Finding finding;
  finding.code = Code::kRankDied;
  finding.at_ns = first.at_ns;
  RankSet alike{first.rank};
  const bool was_ended = first.ended_by.has_value();
  for (const Failure& failure : failures) {
    const bool alike_came = failure.after_a_peer == first.after_a_peer;
    if ((alike_came && is_one_mistake(failure, first)) ||
        (was_ended && failure.ended_by == first.ended_by))
      alike.insert(failure.rank);
  }
  const RankSet everyone = ranks_of(run);
  const bool refused = refused_its_arguments(run, first);
  if (refused) {
    alike = everyone;
    finding.help = help_with_arguments(run.plan);
  }
  const RankSet unheard = ended_alike_unheard(run, failures);
  const std::optional<Evidence> got = got_another_call(job, first);
  const bool blamable = !first.after_a_peer && alike.size() < everyone.size() && unheard.empty() &&
                        !(was_ended && alike.size() > 1) && journal_is_whole(run) &&
                        (whole || failures.size() == 1) && !got &&
                        !may_not_be_first(run, failures, alike);
  const bool alone = everyone.size() == 1 && !refused && journal_is_whole(run);
  if (blamable || alone) {
    finding.culprits = alike;
    finding.confidence = Confidence::kCertain;
  } else if (!first.after_a_peer && failures.size() == everyone.size() && journal_is_whole(run)) {
    finding.culprits = odd_ones_out(failures);
    if (!finding.culprits.empty())
      finding.confidence = Confidence::kLikely;
  }
  finding.affected = everyone.minus(finding.culprits);
  const std::string where = first.raised ? at_site(first.raised) : "";
  finding.headline = fmt::format("{} {}{}", words(alike), in_words(first, alike.size()), where);
  const Raised* const cause = was_ended ? raised_by_its_end(run, first) : nullptr;
  if (cause != nullptr && says(cause->text, Says::kAsked))
    finding.tell(EvidenceKind::kException, {}, "{} raised: {}", history::words_of_pid(cause->pid),
                 first_line(cause->text));
  else if (cause != nullptr)
    finding.headline = fmt::format("{} raised: {}; it ended {}", history::words_of(*first.ended_by),
                                   first_line(cause->text), words(alike));
  for (const Failure& failure : failures) {
    if (alike.contains(failure.rank) && failure.raised) {
      finding.add(failure.raised);
      break;
    }
  }
  add_evidence(run, failures, alike, unheard, finding);
  if (got)
    finding.evidence.push_back(*got);
  return finding;
}

/// What went wrong with our own hosts: nothing is then claimed about the job.
Reason host_trouble(const Run& run) {
  for (const Request& request : run.requests) {
    if (request.outcome == "protocol")
      return lacking(
          Code::kHostBrokeProtocol,
          fmt::format("{} broke the protocol in `{}`: {}",
                      request.rank ? fmt::format("the host of rank {}", request.rank->value)
                                   : std::string("the reference host"),
                      request.message, first_line(request.text)));
  }
  for (const ProcessEnd& end : run.ends) {
    const bool of_ours = end.role == Role::kReference || end.role == Role::kWarmParent;
    if (of_ours && !end.our_signal && end.failed())
      return lacking(Code::kHostBrokeProtocol,
                     fmt::format("the {} ended by itself ({})",
                                 end.role == Role::kReference ? "reference host" : "warm parent",
                                 end.signal ? signal_name(*end.signal)
                                            : fmt::format("status {}", *end.exit_status)));
  }
  return {};
}

}  // namespace

Verdict RankFailed::check(const Job& job) const {
  const Run& run = job.run();
  Verdict verdict{.name = std::string(name())};
  const std::vector<GroupView>& groups = job.groups();
  const bool whole = !groups.empty() && groups.front().run_is_whole;
  const std::vector<Failure>& failures = job.failures();
  std::vector<const ProcessEnd*> leavers;
  if (journal_is_whole(run))  // That it was not asked to go is an absence.
    leavers = early_leavers(run, groups, failures);
  std::uint64_t started = 0;
  std::uint64_t ended = 0;
  for (const ProcessStart& start : run.starts)
    started += start.role == Role::kRank ? 1 : 0;
  for (const ProcessEnd& end : run.ends)
    ended += end.role == Role::kRank ? 1 : 0;
  verdict.examined["ranks"] = ended;
  const bool left_first = !leavers.empty() && (failures.empty() || failures.front().after_a_peer ||
                                               leavers.front()->at_ns <= failures.front().at_ns);
  if (auto gone = host_gone(job))
    verdict.findings.push_back(std::move(*gone));
  else if (left_first)
    verdict.findings.push_back(left_early(run, leavers, failures, whole));
  else if (auto closed = closed_by_a_wait(run, groups, failures))
    verdict.findings.push_back(std::move(*closed));
  else if (!failures.empty())
    verdict.findings.push_back(died(job, whole));
  const bool ended_badly = !verdict.findings.empty();
  if (!run.live) {
    std::vector<Finding> notes = recoveries(run, groups);
    std::move(notes.begin(), notes.end(), std::back_inserter(verdict.findings));
  }
  if (ended_badly) {
    verdict.outcome = Outcome::kFail;
    return verdict;
  }
  verdict.because(host_trouble(run));
  if (verdict.reason.empty() && !run.journal_complete)
    verdict.because(why_open(run));
  else if (verdict.reason.empty() && (ended == 0 || ended < started))
    verdict.reason = "the end of a rank is not on record";
  if (verdict.reason.empty())
    verdict.outcome = Outcome::kPass;
  return verdict;
}

}  // namespace lockstep::checkers
