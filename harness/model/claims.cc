#include "harness/model/claims.h"

#include <algorithm>
#include <limits>

namespace lockstep {
namespace {

constexpr std::uint64_t kNeverNs = std::numeric_limits<std::uint64_t>::max();
// An end is on record when lockstep has seen it: on a busy machine, after what followed it.
constexpr std::uint64_t kSeenLateNs = 250'000'000;
// All ranks of a world come into their group within such a time.
constexpr std::uint64_t kFormsNs = 2'000'000'000;

const ProcessStart* start_of(const Run& run, std::int32_t pid, Rank rank) {
  const auto at = std::find_if(run.starts.begin(), run.starts.end(), [&](const ProcessStart& s) {
    return s.pid == pid && s.rank == rank;
  });
  return at == run.starts.end() ? nullptr : &*at;
}

std::uint64_t end_ns(const Run& run, std::int32_t pid, Rank rank) {
  for (const ProcessEnd& end : run.ends) {
    if (end.pid == pid && end.rank == rank)
      return end.at_ns;
  }
  return kNeverNs;
}

/// Whose end is not on record may have ended after the last thing that it did.
std::uint64_t until_ns(const Run& run, const Process& process, Rank rank,
                       const ProcessStart* start) {
  const std::uint64_t end = end_ns(run, process.pid, rank);
  if (end != kNeverNs || (start != nullptr && !process.closed))
    return end;
  if (process.closed_ns != 0)
    return process.closed_ns;
  return process.collectives.empty() ? process.opened_ns : process.collectives.back().issued_ns;
}

/// As it said, whatever was made of it.
std::optional<Rank> rank_of(const Process& process) {
  return process.rank ? process.rank : process.beside;
}

Claim claim_of(const Run& run, const Process& process) {
  const Rank rank = *rank_of(process);
  const ProcessStart* const start = start_of(run, process.pid, rank);
  Claim claim{.rank = rank,
              .pid = process.pid,
              .process = &process,
              .parent = process.parent_pid,
              .world_size = process.world_size,
              .in_group = !process.groups.empty(),
              .from_ns = process.opened_ns,
              .until_ns = until_ns(run, process, rank, start)};
  if (start != nullptr) {
    claim.meets_at = start->meets_at;
    claim.attempt = start->attempt.value_or(0);
    claim.task = start->task;
    claim.tasks = start->tasks;
    if (!claim.in_group)
      claim.world_size = start->world_size;
  }
  return claim;
}

Claim claim_of(const Run& run, const ProcessStart& start) {
  return {.rank = *start.rank,
          .pid = start.pid,
          .process = nullptr,
          .parent = start.parent,
          .world_size = start.world_size,
          .meets_at = start.meets_at,
          .attempt = start.attempt.value_or(0),
          .task = start.task,
          .tasks = start.tasks,
          .in_group = false,
          .from_ns = start.at_ns,
          .until_ns = end_ns(run, start.pid, *start.rank)};
}

/// They were told to meet at different places.
bool meet_apart(const Claim& a, const Claim& b) {
  return !a.meets_at.empty() && !b.meets_at.empty() && a.meets_at != b.meets_at;
}

bool ended_before(const Claim& claim, std::uint64_t at_ns) { return claim.until_ns < at_ns; }

bool fits(const Party& party, const Claim& claim) {
  return party.size == claim.world_size &&
         std::none_of(party.claims.begin(), party.claims.end(), [&](const Claim* other) {
           return other->rank == claim.rank || ended_before(*other, claim.from_ns) ||
                  meet_apart(*other, claim);
         });
}

int closeness(const Party& party, const Claim& claim) {
  const auto any = [&](auto test) {
    return std::any_of(party.claims.begin(), party.claims.end(),
                       [&](const Claim* other) { return test(*other); })
               ? 1
               : 0;
  };
  return 2 * any([&](const Claim& other) {
           return !claim.meets_at.empty() && other.meets_at == claim.meets_at;
         }) +
         any([&](const Claim& other) { return claim.parent != 0 && other.parent == claim.parent; });
}

/// The one whose children all of them are; 0 if there is no such one, or it is not known.
std::int32_t parent_of(const Party& party) {
  const std::int32_t parent = party.claims.front()->parent;
  const bool of_all = std::all_of(party.claims.begin(), party.claims.end(),
                                  [&](const Claim* claim) { return claim->parent == parent; });
  return of_all ? parent : 0;
}

bool can_be_told_apart(const Party& a, const Party& b) {
  for (const Claim* const one : a.claims) {
    for (const Claim* const other : b.claims) {
      if (meet_apart(*one, *other))
        return true;
    }
  }
  const std::int32_t parent = parent_of(a), other_parent = parent_of(b);
  return parent != 0 && other_parent != 0 && parent != other_parent;
}

/// Each process that has a rank in both was followed by the other one.
bool is_followed_by(const Party& first, const Party& second) {
  return std::all_of(first.claims.begin(), first.claims.end(), [&](const Claim* one) {
    const Claim* const next = second.claim_of(one->rank);
    return next == nullptr || one->until_ns <= next->from_ns + kSeenLateNs;
  });
}

bool formed_together(const Party& a, const Party& b) {
  const auto last_ns = [](const Party& party) {
    std::uint64_t last = 0;
    for (const Claim* const claim : party.claims)
      last = std::max(last, claim->from_ns);
    return last;
  };
  return b.from_ns() <= last_ns(a) + kFormsNs && a.from_ns() <= last_ns(b) + kFormsNs;
}

/// One started both, for one place.
bool are_siblings(const Claim& a, const Claim& b) {
  return a.parent != 0 && a.parent == b.parent && !a.meets_at.empty() && a.meets_at == b.meets_at;
}

/// They are one world, seen as two: nobody is in both. (Siblings that never met were taken up by
/// others.)
bool complete_each_other(const Party& a, const Party& b) {
  const std::size_t both = a.claims.size() + b.claims.size();
  const std::size_t size = static_cast<std::size_t>(std::max(a.size, 0));
  return a.size > 1 && both <= size &&
         std::all_of(a.claims.begin(), a.claims.end(), [&](const Claim* claim) {
           return b.claim_of(claim->rank) == nullptr &&
                  std::any_of(b.claims.begin(), b.claims.end(), [&](const Claim* other) {
                    return claim->overlaps(*other) ||
                           (both == size && are_siblings(*claim, *other));
                  });
         });
}

/// They formed at one time, and who belongs to which is chance.
bool are_mixed(const Party& a, const Party& b) {
  return a.size > 1 && formed_together(a, b) && !is_followed_by(a, b) && !is_followed_by(b, a) &&
         !can_be_told_apart(a, b);
}

void merge_what_is_one(std::vector<Party>& parties) {
  for (std::size_t i = 0; i < parties.size(); ++i) {
    for (std::size_t k = i + 1; k < parties.size();) {
      const bool one =
          parties[i].size == parties[k].size &&
          (complete_each_other(parties[i], parties[k]) || are_mixed(parties[i], parties[k]));
      if (!one) {
        ++k;
        continue;
      }
      parties[i].claims.insert(parties[i].claims.end(), parties[k].claims.begin(),
                               parties[k].claims.end());
      parties.erase(parties.begin() + static_cast<std::ptrdiff_t>(k));
      k = i + 1;
    }
  }
}

/// Of a group of two or more that was there with it: a side-car's group of its own alone is no
/// world.
bool is_side_car(const Claim& claim, const std::vector<Claim>& claims) {
  return claim.is_alone() && std::any_of(claims.begin(), claims.end(), [&](const Claim& other) {
           return other.in_group && !other.is_alone() && other.rank == claim.rank &&
                  other.pid != claim.pid && claim.overlaps(other);
         });
}

/// Somebody else whom the party's launcher started is to have that rank in it.
bool is_taken_by_a_sibling(const Party& party, const Claim& claim,
                           const std::vector<const Claim*>& all) {
  const std::int32_t parent = parent_of(party);
  return parent != 0 && parent != claim.parent &&
         std::any_of(all.begin(), all.end(), [&](const Claim* other) {
           return other->rank == claim.rank && other->parent == parent &&
                  other->world_size == claim.world_size && other->overlaps(claim);
         });
}

std::vector<Party> in_groups(const std::vector<Claim>& claims) {
  std::vector<const Claim*> by_time;
  for (const Claim& claim : claims) {
    if (claim.in_group && !is_side_car(claim, claims))
      by_time.push_back(&claim);
  }
  std::stable_sort(by_time.begin(), by_time.end(),
                   [](const Claim* a, const Claim* b) { return a->from_ns < b->from_ns; });
  std::vector<Party> parties;
  for (const Claim* const claim : by_time) {
    Party* best = nullptr;
    for (Party& party : parties) {
      if (fits(party, *claim) && !is_taken_by_a_sibling(party, *claim, by_time) &&
          (best == nullptr || closeness(party, *claim) >= closeness(*best, *claim)))
        best = &party;
    }
    if (best == nullptr) {
      best = &parties.emplace_back();
      best->size = claim->world_size;
    }
    best->claims.push_back(claim);
  }
  merge_what_is_one(parties);
  return parties;
}

/// It had started, or was there beside, one of those that are this rank in a group: no rank itself.
bool is_beside(const Claim& claim, const Party& party) {
  const Claim* const rank = party.claim_of(claim.rank);
  return rank != nullptr && claim.from_ns <= rank->until_ns && claim.until_ns >= rank->from_ns;
}

/// They were told to meet at one place, and nobody came for a rank that was in the group again: it
/// came late, and somebody else had been taken for it.
bool came_late(const Claim& claim, const Party& party, const std::vector<Claim>& claims) {
  const bool same_place =
      std::all_of(party.claims.begin(), party.claims.end(), [&](const Claim* other) {
        return !claim.meets_at.empty() && other->meets_at == claim.meets_at;
      });
  return same_place && std::none_of(claims.begin(), claims.end(), [&](const Claim& other) {
           const Claim* const was = party.claim_of(other.rank);
           return was != nullptr && was->pid != other.pid && other.from_ns > was->until_ns;
         });
}

/// It is the rank of this world that nobody was seen to be in the group.
bool is_the_missing_one(const Claim& claim, const Party& party, const std::vector<Claim>& claims) {
  const bool was_there = claim.until_ns >= party.from_ns() && claim.from_ns <= party.until_ns();
  return party.size > 1 && party.has_group() && claim.rank.value < party.size &&
         party.claim_of(claim.rank) == nullptr && (was_there || came_late(claim, party, claims)) &&
         std::none_of(party.claims.begin(), party.claims.end(),
                      [&](const Claim* other) { return meet_apart(*other, claim); });
}

/// Of those that never had a group: together until one of them follows another.
bool is_of_the_same_try(const Claim& claim, const Party& party) {
  if (party.has_group())
    return false;
  if (const Claim* const before = party.claim_of(claim.rank))
    return before->overlaps(claim);
  return std::any_of(party.claims.begin(), party.claims.end(), [&](const Claim* other) {
    return !ended_before(*other, claim.from_ns - std::min(claim.from_ns, kSeenLateNs)) &&
           !meet_apart(*other, claim);
  });
}

void place_without_group(const Claim& claim, const std::vector<Claim>& claims,
                         std::vector<Party>& parties) {
  bool placed = false;
  for (Party& party : parties) {
    if (party.has_group() && is_beside(claim, party)) {
      party.wrappers.push_back(claim.pid);
      placed = true;
    }
  }
  if (placed)
    return;
  for (const bool of_a_group : {true, false}) {
    for (auto party = parties.rbegin(); party != parties.rend(); ++party) {
      if (of_a_group ? is_the_missing_one(claim, *party, claims)
                     : is_of_the_same_try(claim, *party)) {
        party->claims.push_back(&claim);
        party->size = std::max(party->size, claim.world_size);
        return;
      }
    }
  }
  Party& party = parties.emplace_back();
  party.size = claim.world_size;
  party.claims.push_back(&claim);
}

}  // namespace

const Claim* Party::claim_of(Rank rank) const {
  const auto at = std::find_if(claims.begin(), claims.end(),
                               [&](const Claim* claim) { return claim->rank == rank; });
  return at == claims.end() ? nullptr : *at;
}

bool Party::has(std::int32_t pid) const {
  return std::any_of(claims.begin(), claims.end(),
                     [&](const Claim* claim) { return claim->pid == pid; }) ||
         std::find(wrappers.begin(), wrappers.end(), pid) != wrappers.end();
}

bool Party::has_group() const {
  return std::any_of(claims.begin(), claims.end(),
                     [](const Claim* claim) { return claim->in_group; });
}

std::uint64_t Party::from_ns() const {
  std::uint64_t first = kNeverNs;
  for (const Claim* const claim : claims)
    first = std::min(first, claim->from_ns);
  return first;
}

std::uint64_t Party::until_ns() const {
  std::uint64_t last = 0;
  for (const Claim* const claim : claims)
    last = std::max(last, claim->until_ns);
  return last;
}

std::vector<Claim> claims_of(const Run& run) {
  std::vector<Claim> claims;
  for (const Process& process : run.processes) {
    if (rank_of(process))
      claims.push_back(claim_of(run, process));
  }
  for (const ProcessStart& start : run.starts) {
    const bool known = std::any_of(claims.begin(), claims.end(), [&](const Claim& claim) {
      return claim.pid == start.pid && (claim.rank == start.rank || claim.in_group);
    });
    if ((start.role == Role::kRank || start.role == Role::kBeside) && start.rank && !known)
      claims.push_back(claim_of(run, start));
  }
  return claims;
}

std::vector<Party> parties_of(const std::vector<Claim>& claims) {
  std::vector<Party> parties = in_groups(claims);
  std::vector<const Claim*> others;
  for (const Claim& claim : claims) {
    if (std::none_of(parties.begin(), parties.end(),
                     [&](const Party& party) { return party.has(claim.pid); }))
      others.push_back(&claim);
  }
  std::stable_sort(others.begin(), others.end(),
                   [](const Claim* a, const Claim* b) { return a->from_ns < b->from_ns; });
  for (const Claim* const claim : others)
    place_without_group(*claim, claims, parties);
  std::stable_sort(parties.begin(), parties.end(),
                   [](const Party& a, const Party& b) { return a.from_ns() < b.from_ns(); });
  return parties;
}

}  // namespace lockstep
