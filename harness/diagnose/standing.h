// What one rank does now, from one look: one answer, its words and its line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/diagnose/look.h"
#include "harness/model/activity.h"
#include "harness/verdict/verdict.h"

namespace lockstep::diagnose {

enum class Stand : std::uint8_t {
  kUnseen,   ///< It was not to be looked at; or it stands in something that is not known.
  kNotHere,  ///< No process of this host is this rank.
  kEnded,
  kMoves,    ///< It was at two places in two looks.
  kBusy,     ///< It computes.
  kHeld,     ///< By something of its own, or that another rank has.
  kExiting,  ///< Its program is over.
  // All below wait for other ranks.
  kInCall,
  kInMessage,
  kInNewGroup,
  kInRendezvous,
  kInStore,
  kForDevice,
};

struct Standing {
  Rank rank{};
  std::int32_t pid{};
  Stand stand{};
  std::string doing{};                  ///< "in all_reduce", "waits for a data loader worker".
  std::string call{};                   ///< What it waits in; equal calls of ranks are equal here.
  std::vector<std::int32_t> members{};  ///< Who meets in that, global ranks; empty: not told.
  std::optional<std::int32_t> peer{};   ///< The only one it waits for.
  bool assumed{};  ///< That all ranks are members is not shown: it has several groups.
  Doing held{};
  RankSet held_by{};
  std::optional<SiteRef> site{};
  /// For how long it has slept; none: not told.
  std::optional<std::uint64_t> for_ns{};
  std::vector<std::string> more{};  ///< Evidence, one line each.
  std::string help{};
  std::vector<std::pair<std::string, std::int64_t>> variables{};  ///< Of its line's function.

  [[nodiscard]] bool waits_for_others() const { return stand >= Stand::kInCall; }
};

Standing standing_of(const Look& look, const Looked& one);

/// By rank; those that no process of this host is, too.
std::vector<Standing> standings_of(const Look& look);

}  // namespace lockstep::diagnose
