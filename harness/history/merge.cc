#include "harness/history/merge.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

#include "harness/history/format.h"

namespace lockstep::history {
namespace {

struct Item {
  std::uint64_t at_ns;
  std::uint32_t process;
  std::uint32_t collective_kind;  // index << 2 | kind
};

/// Nobody's result is there before every member has called.
bool needs_everybody(const Collective& collective) {
  switch (collective.op) {
    case Op::kAllReduce:
    case Op::kAllReduceCoalesced:
    case Op::kAllGather:
    case Op::kAllGatherSingle:
    case Op::kAllGatherCoalesced:
    case Op::kReduceScatter:
    case Op::kReduceScatterSingle:
    case Op::kReduceScatterCoalesced:
    case Op::kAllToAll:
    case Op::kAllToAllSingle:
    case Op::kBarrier:
      return true;
    default:
      return false;
  }
}

std::uint64_t group_key(const Group& group) {
  std::uint64_t key = mix(hash_bytes(group.name.data(), group.name.size()), group.generation);
  key = mix(key, group.store);
  for (const Rank rank : group.ranks)
    key = mix(key, static_cast<std::uint64_t>(rank.value));
  return key;
}

class Merger {
 public:
  explicit Merger(const Run& run) : run_(run) {
    std::vector<std::string> boots;
    for (std::uint32_t p = 0; p < run.processes.size(); ++p) {
      const Process& process = run.processes[p];
      const auto at = std::find(boots.begin(), boots.end(), process.boot_id);
      const auto host = static_cast<std::size_t>(at - boots.begin());
      if (at == boots.end()) {
        boots.push_back(process.boot_id);
        hosts_.emplace_back();
      }
      add_events(p, hosts_[host].items);
    }
    for (Host& host : hosts_)
      std::stable_sort(host.items.begin(), host.items.end(),
                       [](const Item& a, const Item& b) { return a.at_ns < b.at_ns; });
    if (hosts_.size() > 1)
      count_calls();
  }

  std::uint64_t merge(const std::function<bool(const MergedEvent&)>& take) {
    std::uint64_t given = 0;
    for (bool any = true; any;) {
      any = false;
      bool moved = false;
      for (Host& host : hosts_) {
        while (host.next < host.items.size() && !waits(host.items[host.next])) {
          moved = true;
          ++given;
          if (!give(host.items[host.next++], take))
            return given;
        }
        any = any || host.next < host.items.size();
      }
      if (!any || moved)
        continue;
      // Everybody waits for somebody: the records contradict each other. Time decides.
      for (Host& host : hosts_) {
        if (host.next == host.items.size())
          continue;
        ++given;
        if (!give(host.items[host.next++], take))
          return given;
        break;
      }
    }
    return given;
  }

 private:
  struct Host {
    std::vector<Item> items;
    std::size_t next{};
  };

  void add_events(std::uint32_t p, std::vector<Item>& items) {
    const auto& all = run_.processes[p].collectives;
    items.reserve(items.size() + 3 * all.size());
    for (std::uint32_t i = 0; i < all.size(); ++i) {
      items.push_back({all[i].issued_ns, p, i << 2});
      if (all[i].returned_ns)
        items.push_back({*all[i].returned_ns, p, i << 2 | 1});
      if (all[i].completed_ns)
        items.push_back({*all[i].completed_ns, p, i << 2 | 2});
    }
  }

  void count_calls() {
    for (const Process& process : run_.processes) {
      std::vector<std::uint64_t>& keys = group_keys_.emplace_back();
      for (const Group& group : process.groups)
        keys.push_back(group_key(group));
      for (const Collective& collective : process.collectives) {
        if (needs_everybody(collective) && collective.group < keys.size())
          ++calls_left_[mix(keys[collective.group], collective.seq)];
      }
    }
  }

  std::uint32_t* calls_left(const Item& item) {
    const Collective& collective =
        run_.processes[item.process].collectives[item.collective_kind >> 2];
    if (hosts_.size() < 2 || !needs_everybody(collective) ||
        collective.group >= group_keys_[item.process].size())
      return nullptr;
    return &calls_left_[mix(group_keys_[item.process][collective.group], collective.seq)];
  }

  bool waits(const Item& item) {
    if ((item.collective_kind & 3) != 2)
      return false;
    const std::uint32_t* const left = calls_left(item);
    return left != nullptr && *left > 0;
  }

  bool give(const Item& item, const std::function<bool(const MergedEvent&)>& take) {
    if ((item.collective_kind & 3) == 0) {
      if (std::uint32_t* const left = calls_left(item); left != nullptr)
        --*left;
    }
    return take({static_cast<MergedEvent::Kind>(item.collective_kind & 3), item.process,
                 item.collective_kind >> 2, item.at_ns});
  }

  const Run& run_;
  std::vector<Host> hosts_;
  std::vector<std::vector<std::uint64_t>> group_keys_;
  std::unordered_map<std::uint64_t, std::uint32_t> calls_left_;
};

}  // namespace

std::uint64_t merge(const Run& run, const std::function<bool(const MergedEvent&)>& take) {
  return Merger(run).merge(take);
}

}  // namespace lockstep::history
