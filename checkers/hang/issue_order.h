// The order in which ranks issue calls of different groups. Ranks run one program: groups of one
// kind ("tensor", "data", as dumps describe them) are compared with each other.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "checkers/hang/recorded_graph.h"

namespace lockstep::checkers {

class IssueOrder {
 public:
  explicit IssueOrder(const Run& run);

  /// It has issued a call before the one that others wait in, or without that one, which all others
  /// of whom both are known, two or more, issued after it.
  [[nodiscard]] bool went_past(Rank rank, const RecordedWait& wait) const;

 private:
  using Place = std::pair<std::string, std::uint64_t>;  ///< Kind and number.
  struct Issued {
    Rank rank{};
    std::uint64_t record{};
  };
  std::map<Place, std::vector<Issued>> places_{};
  const Run& run_;
};

}  // namespace lockstep::checkers
