// Which calls of a run a finding does not need: those at the start that all ranks agree on.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "harness/model/job.h"

namespace lockstep::exports {

class Cut {
 public:
  explicit Cut(const Job& job);

  [[nodiscard]] bool drops(std::size_t view, Rank rank, const Collective& call) const;
  /// What was left out, one sentence each.
  [[nodiscard]] std::vector<std::string> notes() const;

 private:
  /// Of messages: the group, the ranks in it of both ends, and the tag.
  using Channel = std::tuple<std::size_t, std::int32_t, std::int32_t, std::int32_t>;

  void add_messages(const Job& job);
  [[nodiscard]] static Channel channel_of(std::size_t view, std::int32_t self,
                                          const Collective& call);

  std::vector<std::uint64_t> first_{};  ///< Of each group: the first that is kept.
  std::vector<std::string> labels_{};
  std::vector<std::map<Rank, std::int32_t>> places_{};  ///< Of each group: ranks in it.
  std::map<Channel, std::uint64_t> first_message_{};
  std::uint64_t messages_dropped_{};
};

}  // namespace lockstep::exports
