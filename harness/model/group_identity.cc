#include "harness/model/group_identity.h"

#include <algorithm>
#include <map>

namespace lockstep {

GroupIdentity identity_of(const Group& group) {
  return {group.name, group.size, group.ranks, group.store};
}

std::set<GroupIdentity> unplaced_groups(const std::vector<const Process*>& processes) {
  struct Made {
    std::size_t most{}, fewest{~std::size_t{0}};
    std::set<std::int32_t> places{};
    bool twice{};
  };
  std::map<GroupIdentity, Made> all;
  std::set<GroupIdentity> unplaced;
  for (const Process* const process : processes) {
    std::map<GroupIdentity, std::vector<std::int32_t>> places;
    for (const Group& group : process->groups) {
      if (group.named_by_store && !group.inside)
        places[identity_of(group)].push_back(group.my_rank);
    }
    for (const auto& [identity, mine] : places) {
      Made& made = all[identity];
      made.most = std::max(made.most, mine.size());
      made.fewest = std::min(made.fewest, mine.size());
      made.twice |= !made.places.insert(mine.front()).second ||
                    std::count(mine.begin(), mine.end(), mine.front()) !=
                        static_cast<std::ptrdiff_t>(mine.size());
    }
  }
  for (const auto& [identity, made] : all) {
    if (identity.store == 0 || made.twice || made.most != made.fewest)
      unplaced.insert(identity);
  }
  return unplaced;
}

}  // namespace lockstep
