#include "checkers/hang/expired_waits.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/model/call_site.h"
#include "harness/model/coverage.h"
#include "harness/model/error_patterns.h"
#include "harness/model/stack_patterns.h"

namespace lockstep::checkers {
namespace {

using history::Op;

constexpr std::uint64_t kMomentNs = 100'000'000;  // Samples of one look at a process; a message.
constexpr std::size_t kEvidenceMax = 8;

/// Of this thread, at the look at its process that the stack is from.
std::optional<std::uint64_t> limit_of(const Run& run, const StackSample& stack) {
  constexpr std::uint64_t kLookNs = 500'000'000;
  std::optional<std::uint64_t> until;
  std::uint64_t nearest = kLookNs;
  for (const StateSample& sample : run.states) {
    const std::uint64_t apart =
        sample.at_ns > stack.at_ns ? sample.at_ns - stack.at_ns : stack.at_ns - sample.at_ns;
    if (sample.pid != stack.pid || apart > nearest)
      continue;
    for (const ThreadState& thread : sample.threads) {
      if (thread.tid == stack.tid && thread.until_ns && *thread.until_ns > stack.at_ns) {
        until = thread.until_ns;
        nearest = apart;
      }
    }
  }
  return until;
}

/// What the peer issued for this message; null if it did not.
const Collective* other_end(const Member& me, const Member& peer, const Collective& call) {
  const Op op = call.op == Op::kSend ? Op::kRecv : Op::kSend;
  const auto found = std::find_if(peer.process->collectives.begin(),
                                  peer.process->collectives.end(), [&](const Collective& theirs) {
                                    return theirs.group == peer.group && theirs.op == op &&
                                           theirs.tag == call.tag &&
                                           theirs.root == me.about().my_rank &&
                                           theirs.seq == call.seq;
                                  });
  return found == peer.process->collectives.end() ? nullptr : &*found;
}

/// The last thing that the thread did before.
std::uint64_t last_done_ns(const Process& process, std::int32_t tid, std::uint64_t before_ns) {
  std::uint64_t last = process.opened_ns;
  for (const Collective& call : process.collectives) {
    for (const std::uint64_t ns : {call.issued_ns, call.returned_ns.value_or(0)}) {
      if (static_cast<std::int32_t>(call.thread) == tid && ns <= before_ns)
        last = std::max(last, ns);
    }
  }
  return last;
}

bool was_alive(const Run& run, const Process& process, std::uint64_t at_ns) {
  return std::none_of(run.ends.begin(), run.ends.end(), [&](const ProcessEnd& end) {
    return end.pid == process.pid && end.at_ns <= at_ns;
  });
}

class Expiry {
 public:
  Expiry(const Run& run, const std::vector<GroupView>& groups, const StackSample& stack,
         std::uint64_t until_ns)
      : run_(run), groups_(groups), stack_(stack), until_ns_(until_ns) {}

  /// Each message that it may have waited for had either come long before, or not when the limit
  /// passed.
  [[nodiscard]] std::optional<ExpiredWait> wait() const {
    std::optional<ExpiredWait> expired;
    for (const GroupView& group : groups_) {
      const Member* const me = stack_.rank ? group.member(*stack_.rank) : nullptr;
      if (me == nullptr || me->process->pid != stack_.pid)
        continue;
      for (const Collective& call : me->process->collectives) {
        if (call.group != me->group || call.issued_ns > stack_.at_ns || call.completed_ns ||
            !awaits_message(stack_, call.op))
          continue;
        const Member* const peer = sender_or_receiver(group, *me, call);
        if (peer == nullptr)
          return std::nullopt;
        const Collective* const theirs = other_end(*me, *peer, call);
        if (theirs != nullptr && theirs->issued_ns + kMomentNs < stack_.at_ns)
          continue;
        if ((theirs != nullptr && theirs->issued_ns <= until_ns_) ||
            !was_alive(run_, *peer->process, until_ns_))
          return std::nullopt;
        if (!expired)
          expired = about(group, *me, *peer, call, theirs);
      }
    }
    return expired;
  }

 private:
  /// Null where it may be anybody, or was not all seen.
  [[nodiscard]] static const Member* sender_or_receiver(const GroupView& group, const Member& me,
                                                        const Collective& call) {
    const auto rank = group.global_rank(call.root);
    const Member* const peer = rank ? group.member(*rank) : nullptr;
    return call.op != Op::kRecvAny && me.is_complete && peer != nullptr && peer->is_complete &&
                   peer->process->dropped == 0
               ? peer
               : nullptr;
  }

  [[nodiscard]] ExpiredWait about(const GroupView& group, const Member& me, const Member& peer,
                                  const Collective& call, const Collective* theirs) const {
    ExpiredWait wait{.rank = me.rank, .group = &group, .call = &call, .at_ns = until_ns_};
    wait.limit_ns = until_ns_ - last_done_ns(*me.process, stack_.tid, stack_.at_ns);
    const auto groups_ms = me.about().timeout_ms;
    wait.of_its_own =
        groups_ms && wait.limit_ns + kMomentNs < static_cast<std::uint64_t>(*groups_ms) * 1'000'000;
    wait.site = site_of(me.rank, stack_.frames, "culprit");
    if (!wait.site)
      wait.site = site_of(*me.process, call, "culprit");
    if (theirs != nullptr) {
      wait.came_at = site_of(*peer.process, *theirs, "peer");
      wait.came_ns = theirs->issued_ns;
    }
    return wait;
  }

  const Run& run_;
  const std::vector<GroupView>& groups_;
  const StackSample& stack_;
  std::uint64_t until_ns_;
};

/// It did something afterwards, or was seen elsewhere, or failed otherwise.
bool went_on(const ExpiredWait& wait, const std::vector<Failure>& failures) {
  return std::none_of(failures.begin(), failures.end(), [&](const Failure& failure) {
    return failure.rank == wait.rank && says(failure.exception, Says::kExpired) &&
           failure.at_ns < wait.at_ns + 10 * kMomentNs;
  });
}

}  // namespace

std::optional<ExpiredWait> first_expired_wait(const Run& run, const std::vector<GroupView>& groups,
                                              std::uint64_t before_ns) {
  std::optional<ExpiredWait> first;
  for (const StackSample& stack : run.stacks) {
    if (!awaits_message(stack, Op::kSend) && !awaits_message(stack, Op::kRecv))
      continue;
    const auto until_ns = limit_of(run, stack);
    if (!until_ns || *until_ns >= before_ns || (first && first->at_ns <= *until_ns))
      continue;
    if (auto wait = Expiry(run, groups, stack, *until_ns).wait())
      first = std::move(wait);
  }
  return first;
}

std::optional<Finding> closed_by_a_wait(const Run& run, const std::vector<GroupView>& groups,
                                        const std::vector<Failure>& failures) {
  if (failures.empty() || !journal_is_whole(run) ||
      !std::all_of(failures.begin(), failures.end(),
                   [](const Failure& failure) { return failure.after_a_peer; }))
    return std::nullopt;
  std::uint64_t first_ns = kNeverNs;
  for (const Failure& failure : failures)
    first_ns = std::min(first_ns, failure.at_ns);
  const auto wait = first_expired_wait(run, groups, first_ns);
  if (!wait || !went_on(*wait, failures))
    return std::nullopt;
  Finding finding;
  finding.code = Code::kRankDied;
  finding.at_ns = wait->at_ns;
  finding.group = wait->group->label();
  finding.op = std::string(history::name_of(wait->call->op));
  finding.seq = wait->call->seq;
  if (wait->of_its_own) {
    finding.culprits = {wait->rank};
    finding.confidence = Confidence::kCertain;
  }
  finding.affected = ranks_of(run).minus(finding.culprits);
  finding.headline = fmt::format(
      "rank {}'s wait in {} expired after {:.1f} s{}; that closed the connections of the group, "
      "and whatever was raised came after it",
      wait->rank.value, wait->group->label(*wait->call), static_cast<double>(wait->limit_ns) / 1e9,
      at_site(wait->site));
  if (wait->site) {
    finding.sites.push_back(*wait->site);
    finding.sites.back().role = finding.culprits.empty() ? "peer" : "culprit";
  }
  finding.add(wait->came_at);
  const Rank peer = *wait->group->global_rank(wait->call->root);
  if (wait->came_ns)
    finding
        .tell(EvidenceKind::kCall, {peer}, "rank {} lived then, and came to it {:.1f} s later",
              peer.value, static_cast<double>(*wait->came_ns - wait->at_ns) / 1e9)
        .at(wait->came_at);
  else
    finding.tell(EvidenceKind::kCall, {peer}, "rank {} lived then, and had not come to it",
                 peer.value);
  for (const Failure& failure : failures) {
    ++finding.consequences;
    if (finding.evidence.size() < kEvidenceMax)
      finding
          .tell(kind_of(failure), {failure.rank}, "rank {} {}", failure.rank.value,
                in_words(failure))
          .at(failure.raised)
          .text += " after it";
  }
  finding.cause =
      "a wait of Gloo's that expires closes all connections of its group: the exception can be "
      "caught, but the group is of no use any more";
  finding.help =
      "do not poll with a limit: let a thread wait for it without one, with a group of its own "
      "(dist.new_group)";
  return finding;
}

}  // namespace lockstep::checkers
