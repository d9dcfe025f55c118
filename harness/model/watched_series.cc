#include "harness/model/watched_series.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "harness/history/vocabulary.h"

namespace lockstep {
namespace {

using Key = std::tuple<std::uint32_t, std::string, std::uint32_t>;  // Replica, name, optimizer.
using Place = std::pair<std::uint64_t, std::uint32_t>;

template <class Same>
bool all_same(const std::map<Rank, const history::WatchEntry*>& by_rank, std::uint32_t flag,
              Same same) {
  const history::WatchEntry& first = *by_rank.begin()->second;
  return std::all_of(by_rank.begin(), by_rank.end(), [&](const auto& other) {
    return (other.second->flags & flag) == (first.flags & flag) && same(first, *other.second);
  });
}

/// Of one group: every parameter at every place, by the members that have it.
class Collector {
 public:
  Collector(const GroupView& group, bool buffers) : group_(group), buffers_(buffers) {}

  void add(const Member& member) {
    const WatchedValues& values = *member.process->watched;
    for (const WatchedPoint& point : values.points) {
      if (point.group != member.group)
        continue;
      for (const history::WatchEntry& entry : point.entries) {
        if (values.tensors[entry.tensor].buffer == buffers_)
          add(member, values.tensors[entry.tensor], point, entry);
      }
    }
  }

  void finish(std::vector<WatchedSeries>& all) {
    take_later_ones();
    for (const Key& key : order_) {
      WatchedSeries series{.group = &group_,
                           .tensor = tensors_.at(key),
                           .replica = std::get<0>(key),
                           .optimizer = std::get<2>(key)};
      for (auto& [place, sight] : sights_[key]) {
        if (sight.by_rank.size() == group_.members.size() && sight.all_have(history::kValueSeen))
          series.sights.push_back(std::move(sight));
      }
      if (!series.sights.empty())
        all.push_back(std::move(series));
    }
  }

 private:
  /// An optimizer that some members alone made takes the place of the one before on these.
  void take_later_ones() {
    for (const Key& key : order_) {
      const auto& [replica, name, optimizer] = key;
      const auto before =
          optimizer == 0 ? sights_.end() : sights_.find({replica, name, optimizer - 1});
      if (before == sights_.end() || is_of_all(sights_[key]))
        continue;
      for (auto& [place, sight] : sights_[key]) {
        const auto [at, made] = before->second.try_emplace(place, sight);
        at->second.by_rank.merge(sight.by_rank);
        at->second.other_optimizer = true;
      }
    }
  }

  [[nodiscard]] bool is_of_all(const std::map<Place, WatchedSight>& sights) const {
    return std::any_of(sights.begin(), sights.end(), [&](const auto& sight) {
      return sight.second.by_rank.size() == group_.members.size();
    });
  }

  void add(const Member& member, const WatchedTensor& tensor, const WatchedPoint& point,
           const history::WatchEntry& entry) {
    const Key key{tensor.replica, tensor.name, point.optimizer};
    if (tensors_.emplace(key, &tensor).second)
      order_.push_back(key);
    WatchedSight& sight = sights_[key][Place{point.position, point.ordinal}];
    if (sight.by_rank.empty()) {
      sight.position = point.position;
      sight.ordinal = point.ordinal;
      sight.step = point.step;
    }
    sight.at_ns = std::max(sight.at_ns, point.at_ns);
    sight.by_rank.emplace(member.rank, &entry);
  }

  const GroupView& group_;
  bool buffers_;
  std::vector<Key> order_{};
  std::map<Key, const WatchedTensor*> tensors_{};
  std::map<Key, std::map<Place, WatchedSight>> sights_{};
};

std::vector<WatchedSeries> all_series(const std::vector<GroupView>& groups, bool buffers) {
  std::vector<WatchedSeries> all;
  for (const GroupView& group : groups) {
    if (!is_watched(group))
      continue;
    Collector collector(group, buffers);
    for (const Member& member : group.members)
      collector.add(member);
    collector.finish(all);
  }
  return all;
}

}  // namespace

bool WatchedSight::all_have(std::uint32_t flag) const {
  return std::all_of(by_rank.begin(), by_rank.end(),
                     [&](const auto& held) { return (held.second->flags & flag) != 0; });
}

bool WatchedSight::any_has(std::uint32_t flag) const {
  return std::any_of(by_rank.begin(), by_rank.end(),
                     [&](const auto& held) { return (held.second->flags & flag) != 0; });
}

bool WatchedSight::values_equal() const {
  return all_same(by_rank, history::kValueSeen,
                  [](const auto& a, const auto& b) { return a.value.digest == b.value.digest; });
}

bool WatchedSight::gradients_equal() const {
  return all_same(by_rank, history::kGradientSeen, [](const auto& a, const auto& b) {
    return a.gradient.digest == b.gradient.digest;
  });
}

bool WatchedSight::states_equal() const {
  return all_same(by_rank, history::kStateSeen,
                  [](const auto& a, const auto& b) { return a.state == b.state; });
}

bool WatchedSight::settings_equal() const {
  return all_same(by_rank, 0,
                  [](const auto& a, const auto& b) { return a.settings == b.settings; });
}

std::vector<WatchedSeries> watched_series(const std::vector<GroupView>& groups) {
  return all_series(groups, /*buffers=*/false);
}

std::vector<WatchedSeries> watched_buffers(const std::vector<GroupView>& groups) {
  return all_series(groups, /*buffers=*/true);
}

bool is_watched(const GroupView& group) {
  return group.size >= 2 && group.members.size() == static_cast<std::size_t>(group.size) &&
         std::all_of(group.members.begin(), group.members.end(), [](const Member& member) {
           return member.process != nullptr && member.process->watched != nullptr;
         });
}

double distance(const history::WatchValue& a, const history::WatchValue& b) {
  const double first = a.sums[0] - b.sums[0];
  const double second = a.sums[1] - b.sums[1];
  const double apart = std::sqrt((first * first + second * second) / 2);
  const double norm = std::max(a.norm, b.norm);
  return apart == 0 ? 0 : norm > 0 ? apart / norm : apart;
}

bool differ_by_factor(const history::WatchValue& a, const history::WatchValue& b) {
  constexpr double kRounding = 1e-3;  // Of half precision.
  if (!(a.norm > 0) || !(b.norm > 0))
    return false;
  const double factor = b.norm / a.norm;
  return std::abs(b.sums[0] - factor * a.sums[0]) <= kRounding * b.norm &&
         std::abs(b.sums[1] - factor * a.sums[1]) <= kRounding * b.norm;
}

double tolerance_of(const WatchedTensor& tensor) {
  switch (tensor.dtype) {
    case history::DType::kFloat64:
      return 1e-12;
    case history::DType::kFloat16:
    case history::DType::kBFloat16:
      return 1e-2;
    default:
      return 1e-5;
  }
}

}  // namespace lockstep
