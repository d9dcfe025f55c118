#include "checkers/order/point_to_point.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "checkers/order/divergence.h"
#include "harness/history/format.h"
#include "harness/model/call_site.h"
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

}  // namespace lockstep::checkers
