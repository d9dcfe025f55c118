#include "checkers/order/point_to_point.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "checkers/order/divergence.h"
#include "harness/history/format.h"
#include "harness/model/call_site.h"
#include "harness/model/ending.h"
#include "harness/model/error_patterns.h"
#include "harness/model/matching.h"

namespace lockstep::checkers {

std::optional<Finding> unmatched_pair(const GroupView& group, std::uint64_t& compared) {
  using Key = std::tuple<std::int32_t, std::int32_t, std::int32_t, std::uint64_t>;
  std::map<Key, At> sends;
  std::vector<std::pair<Key, At>> receives;
  for (const Member& member : group.members) {
    if (!member.is_complete)
      continue;
    for (const Collective& call : member.process->collectives) {
      if (call.group != member.group || call.seq == history::kSeqUnknown || call.overlapped)
        continue;
      const std::int32_t me = member.about().my_rank;
      if (call.op == history::Op::kSend)
        sends[{me, call.root, call.tag, call.seq}] = {&member, &call};
      else if (call.op == history::Op::kRecv)
        receives.push_back({{call.root, me, call.tag, call.seq}, {&member, &call}});
      else if (call.op == history::Op::kRecvAny)
        return std::nullopt;  // It may have taken any message: numbers say nothing any more.
    }
  }
  for (const auto& [key, at_receiver] : receives) {
    const At& receive = at_receiver;
    const auto send = sends.find(key);
    if (send == sends.end())
      continue;
    ++compared;
    const auto extent = [](const Collective& c) { return std::max(c.numel_in, c.numel_out); };
    Collective expected = *receive.call;
    expected.op = history::Op::kSend;
    const auto [sent, received] = in_like_terms(*send->second.call, expected);
    const std::vector<Code> codes = differences(sent, received);
    const bool too_long = extent(sent) > extent(received);
    if (!too_long && std::find(codes.begin(), codes.end(), Code::kDifferentDtype) == codes.end())
      continue;
    Finding finding;
    finding.code = Code::kP2pUnmatched;
    finding.group = group.label();
    finding.op = "send";
    finding.seq = std::get<3>(key);
    finding.confidence = Confidence::kCertain;
    finding.at_ns = std::max(send->second.call->issued_ns, receive.call->issued_ns);
    for (const At& at : {send->second, receive}) {
      finding.affected.insert(at.member->rank);
      finding.add(site_of(*at.member->process, *at.call, "peer"));
      finding.tell_of(EvidenceKind::kCall, {at.member->rank}, "{}", describe(*at.call)).site =
          site_of(*at.member->process, *at.call, "peer");
    }
    finding.headline =
        fmt::format("rank {} sends {} {} to rank {}, which receives {} {} (tag {}, message {})",
                    send->second.member->rank.value, extent(*send->second.call),
                    history::name_of(send->second.call->dtype), receive.member->rank.value,
                    extent(*receive.call), history::name_of(receive.call->dtype), std::get<2>(key),
                    std::get<3>(key));
    return finding;
  }
  return std::nullopt;
}

namespace {

/// Of one sender to one receiver by one tag; nothing where a number is not known.
std::optional<std::vector<const Collective*>> sent(const Member& sender, std::int32_t to,
                                                   std::int32_t tag) {
  std::vector<const Collective*> all;
  for (const Collective& call : sender.process->collectives) {
    if (call.group != sender.group || call.op != history::Op::kSend || call.root != to ||
        call.tag != tag)
      continue;
    if (call.seq == history::kSeqUnknown || call.overlapped)
      return std::nullopt;
    all.push_back(&call);
  }
  return all;
}

/// It failed, or its rank was told in its last call, this one, that another is gone.
bool is_fruitless(const Run& run, const Member& member, const Collective& receive) {
  if (receive.failed)
    return true;
  return receive.completion_unseen && &receive == &member.process->collectives.back() &&
         std::any_of(run.raised.begin(), run.raised.end(), [&](const Raised& raised) {
           return raised.rank == member.rank && raised.pid == member.process->pid &&
                  raised.at_ns >= receive.issued_ns && says(raised.text, Says::kPeerGone);
         });
}

}  // namespace

std::optional<Finding> never_sent(const Run& run, const GroupView& group) {
  for (const Member& member : group.members) {
    if (came_to_its_end(run, member.rank))
      continue;  // It may take messages until its peers are gone.
    for (const Collective& receive : member.process->collectives) {
      if (receive.group != member.group || receive.op != history::Op::kRecv ||
          !is_fruitless(run, member, receive) || receive.overlapped ||
          receive.seq == history::kSeqUnknown || receive.root < 0)
        continue;
      const auto sender =
          std::find_if(group.members.begin(), group.members.end(),
                       [&](const Member& other) { return other.about().my_rank == receive.root; });
      if (sender == group.members.end() || !sender->is_complete || !member.is_complete ||
          !came_to_its_end(run, sender->rank))
        continue;
      const auto messages = sent(*sender, member.about().my_rank, receive.tag);
      if (!messages || messages->size() > receive.seq)
        continue;
      Finding finding;
      finding.code = Code::kP2pUnmatched;
      finding.group = group.label();
      finding.op = "recv";
      finding.seq = receive.seq;
      finding.confidence = Confidence::kCertain;
      finding.at_ns = receive.issued_ns;
      finding.affected = {member.rank, sender->rank};
      finding.headline = fmt::format(
          "rank {} waits for message {} of rank {} (tag {}), which sent {} and ended",
          member.rank.value, receive.seq, sender->rank.value, receive.tag, messages->size());
      finding.add(site_of(*member.process, receive, "peer"));
      if (!messages->empty()) {
        finding.add(site_of(*sender->process, *messages->back(), "peer"));
        finding.tell_of(EvidenceKind::kCall, {sender->rank}, "its last one: {}",
                        describe(*messages->back()));
      }
      finding.cause = "one of the two counts otherwise: the calls do not tell which is right";
      return finding;
    }
  }
  return std::nullopt;
}

}  // namespace lockstep::checkers
