#include "checkers/hang/issue_order.h"

#include <fmt/format.h>

#include <algorithm>

#include "checkers/order/kindred_groups.h"

namespace lockstep::checkers {
namespace {

constexpr std::size_t kOthersMax = 64;  // Ranks that are asked.

/// Those of one kind and size come at one place in the order; of no kind, the group itself.
std::string place_of(const Group& group) {
  const std::string kind = kind_of_group(group.name);
  return kind.empty() ? group.name : fmt::format("{} {}", kind, group.size);
}

}  // namespace

IssueOrder::IssueOrder(const Run& run) : run_(run) {
  for (const Process& process : run.processes) {
    std::vector<std::string> kinds;
    for (const Group& group : process.groups)
      kinds.push_back(place_of(group));
    for (const Collective& call : process.collectives) {
      if (!history::is_point_to_point(call.op))
        places_[{kinds[call.group], call.seq}].push_back({*process.rank, call.record});
    }
  }
}

bool IssueOrder::went_past(Rank rank, const RecordedWait& wait) const {
  const auto awaited = places_.find({place_of(wait.group->members.front().about()), wait.seq});
  const Process* const process = run_.process_of(rank);
  if (awaited == places_.end() || process == nullptr)
    return false;
  std::map<Rank, std::uint64_t> records;
  for (const Issued& issued : awaited->second)
    records.emplace(issued.rank, issued.record);
  const auto own = records.find(rank);
  const std::uint64_t until = own == records.end() ? ~std::uint64_t{0} : own->second;
  return std::any_of(
      process->collectives.begin(), process->collectives.end(), [&](const Collective& call) {
        const auto place = places_.find({place_of(process->groups[call.group]), call.seq});
        if (call.record >= until || place == places_.end() || place == awaited)
          return false;
        std::size_t after = 0, before = 0;
        for (const Issued& issued : place->second) {
          const auto at = records.find(issued.rank);
          if (at != records.end() && issued.rank != rank)
            ++(issued.record > at->second ? after : before);
          if (after + before >= kOthersMax)
            break;
        }
        return after > 1 && before == 0;
      });
}

}  // namespace lockstep::checkers
