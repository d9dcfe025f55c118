#include "checkers/order/group_creations.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "harness/history/format.h"
#include "harness/model/call_site.h"
#include "harness/model/group_view.h"

namespace lockstep::checkers {
namespace {

constexpr std::size_t kLinesMax = 8;

/// One creation by one rank. Its number is the name that PyTorch gave it.
struct Created {
  Rank rank{};
  const Process* process{};
  const Creation* creation{};
  std::optional<SiteRef> line{};

  [[nodiscard]] const std::vector<Rank>& list() const { return creation->ranks; }
  [[nodiscard]] bool lists(Rank other) const {
    return std::find(list().begin(), list().end(), other) != list().end();
  }
};

/// What one rank created in one world; a number that is not there it passed as no member.
struct Sequence {
  Rank rank{};
  std::map<std::uint64_t, Created> by_number{};
  bool other_names{};  ///< Groups whose names are no numbers, and may or may not count.

  [[nodiscard]] const Created* at(std::uint64_t number) const {
    const auto place = by_number.find(number);
    return place == by_number.end() ? nullptr : &place->second;
  }
  /// It went on to others without having been a member of this one.
  [[nodiscard]] bool passed(std::uint64_t number) const {
    return at(number) == nullptr && !by_number.empty() && by_number.rbegin()->first > number;
  }
};

/// The ranks that created groups in one world, by rank.
using World = std::vector<Sequence>;

std::optional<std::uint64_t> number_of(const std::string& name) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  return error == std::errc{} && end == name.data() + name.size() && !name.empty()
             ? std::optional(number)
             : std::nullopt;
}

/// The same list, from the same line.
bool are_one(const Created& a, const Created& b) {
  return a.list() == b.list() && a.line && b.line && a.line->file == b.line->file &&
         a.line->line == b.line->line;
}

bool at_one_line(const Created& a, const Created& b) {
  return a.line && b.line && a.line->file == b.line->file && a.line->line == b.line->line;
}

/// Nobody meets anybody in a group of one: ranks may well have one each under the same name.
bool conflict(const Created& a, const Created& b) {
  return !a.list().empty() && !b.list().empty() && a.list() != b.list() &&
         (a.list().size() > 1 || b.list().size() > 1);
}

/// The worlds of one process, one after the other: the first begins before its first creation, and
/// each later one with a creation of number 0.
struct Worlds {
  std::vector<Sequence> sequences{Sequence{}};
  std::vector<std::uint64_t> stores{0};  ///< Where the groups of each met; 0: it has none.
  std::vector<const Group*> all{};       ///< The group of all of its ranks.
};

Worlds worlds_of(const Process& process, std::uint64_t cutoff_ns) {
  Worlds worlds;
  for (const Creation& creation : process.creations) {
    if (creation.at_ns > cutoff_ns)
      break;
    const auto number = number_of(creation.name);
    if (number == 0U) {
      worlds.sequences.emplace_back();
      worlds.stores.push_back(0);
      continue;
    }
    Sequence& sequence = worlds.sequences.back();
    if (!number) {
      sequence.other_names = true;
      continue;
    }
    worlds.stores.back() = creation.store;
    const std::vector<Frame>& frames = process.sites[creation.site].frames;
    sequence.by_number.try_emplace(*number, Created{*process.rank, &process, &creation,
                                                    site_of(*process.rank, frames, "peer")});
  }
  for (const Group& group : process.groups) {
    if (group.name == "0")
      worlds.all.push_back(&group);
  }
  for (Sequence& sequence : worlds.sequences)
    sequence.rank = *process.rank;
  return worlds;
}

/// Its file tells the groups of its parent as well.
bool has_its_parents(const Process& process) {
  return (process.capabilities & history::kForkedChild) != 0 &&
         std::any_of(process.groups.begin(), process.groups.end(),
                     [](const Group& group) { return !group.seen_from_creation; });
}

/// Ranks are of one world if they were in as many before, it has one size for all of them, each has
/// a place of its own in it, and their groups meet in one store.
std::vector<World> worlds_of(const Run& run) {
  const std::uint64_t cutoff_ns = first_act_ns(run);
  using Key = std::tuple<std::size_t, std::size_t, std::int32_t, std::uint64_t>;
  std::map<Key, World> worlds;
  std::map<Key, std::set<std::int32_t>> places;
  std::set<Key> unclear;
  for (const Rank rank : ranks_of(run)) {
    const Process* const process = current_process(run, rank);
    if (process == nullptr || process->damaged || has_its_parents(*process))
      continue;
    Worlds of_process = worlds_of(*process, cutoff_ns);
    const std::size_t count = of_process.sequences.size();
    for (std::size_t i = 0; i < count && i < of_process.all.size(); ++i) {
      const Group& all = *of_process.all[i];
      if (of_process.stores[i] == 0)
        continue;
      const Key key{count, i, all.size, of_process.stores[i]};
      if (!places[key].insert(all.my_rank).second)
        unclear.insert(key);
      worlds[key].push_back(std::move(of_process.sequences[i]));
    }
  }
  std::vector<World> clear;
  for (auto& [key, world] : worlds) {
    if (!unclear.contains(key))
      clear.push_back(std::move(world));
  }
  return clear;
}

/// One number under which the ranks of a world did not create one group.
class Difference {
 public:
  /// Nothing: they did, or are not known to have created others.
  static std::optional<Finding> first_in(const World& world) {
    std::set<std::uint64_t> numbers;
    for (const Sequence& sequence : world) {
      for (const auto& [number, created] : sequence.by_number)
        numbers.insert(number);
    }
    for (const std::uint64_t number : numbers) {
      Difference difference(world, number);
      if (difference.is_one())
        return difference.finding();
    }
    return std::nullopt;
  }

 private:
  Difference(const World& world, std::uint64_t number) : world_(world), number_(number) {
    for (const Sequence& sequence : world) {
      if (const Created* const created = sequence.at(number))
        here_.push_back(created);
    }
  }

  bool is_one() {
    for (const Created* const a : here_) {
      for (const Created* const b : here_) {
        if (conflict(*a, *b))
          return true;
      }
      for (const Sequence& other : world_) {
        if (a->lists(other.rank) && other.passed(number_))
          passed_.insert(other.rank);
      }
    }
    return !passed_.empty();
  }

  Finding finding() {
    find_left_out();
    Finding finding;
    finding.code = Code::kGroupDiffers;
    finding.group = fmt::format("{}", number_);
    finding.op = "new_group";
    finding.confidence = Confidence::kCertain;
    attribute(finding);
    for (const Created* const created : here_) {
      finding.at_ns = std::max(finding.at_ns, created->creation->at_ns);
      if (!finding.culprits.contains(created->rank))
        finding.affected.insert(created->rank);
    }
    for (const Rank rank : passed_)
      finding.affected.insert(rank);
    add_evidence(finding);
    add_sites(finding);
    finding.headline = headline(finding.culprits);
    finding.help =
        "call new_group for every group on every rank, whether it is a member or not, in one order";
    return finding;
  }

  /// Ranks that made here what another one made later: that one made something else in between.
  void find_left_out() {
    for (const Created* const early : here_) {
      for (const Sequence& other : world_) {
        const Created* const instead = other.at(number_);
        const bool made_later =
            std::any_of(other.by_number.upper_bound(number_), other.by_number.end(),
                        [&](const auto& entry) { return are_one(entry.second, *early); });
        if (made_later && (instead == nullptr || !are_one(*instead, *early))) {
          behind_.insert(early->rank);
          ahead_.insert(other.rank);
          if (instead != nullptr)
            left_out_ = instead;
        }
      }
    }
  }

  /// Each made later what the other made here: the order alone differs, and nothing was left out.
  [[nodiscard]] bool is_an_order() const {
    return std::any_of(behind_.begin(), behind_.end(),
                       [&](Rank rank) { return ahead_.contains(rank); });
  }

  void attribute(Finding& finding) const {
    const bool counts_alike =
        std::none_of(world_.begin(), world_.end(), [](const Sequence& s) { return s.other_names; });
    if (left_out_ == nullptr || is_an_order() || !counts_alike)
      return;
    // All ranks must call, and most of all are those at fault who take it that only members must.
    const bool of_others = std::none_of(behind_.begin(), behind_.end(),
                                        [&](Rank rank) { return left_out_->lists(rank); });
    if (of_others)
      finding.culprits = behind_;
    else if (ahead_.size() > behind_.size() && world_.size() > 2)
      finding.culprits = behind_;
    else if (behind_.size() > ahead_.size() && world_.size() > 2)
      finding.culprits = ahead_;
    if (!of_others && !finding.culprits.empty())
      finding.confidence = Confidence::kLikely;
  }

  [[nodiscard]] static RankSet set_of(const std::vector<Rank>& list) {
    RankSet ranks;
    for (const Rank rank : list)
      ranks.insert(rank);
    return ranks;
  }

  /// The creations under this number, equal ones together.
  [[nodiscard]] std::vector<std::vector<const Created*>> classes() const {
    std::vector<std::vector<const Created*>> classes;
    for (const Created* const created : here_) {
      const auto place = std::find_if(classes.begin(), classes.end(), [&](const auto& alike) {
        return alike.front()->list() == created->list() && at_one_line(*alike.front(), *created);
      });
      if (place == classes.end())
        classes.push_back({created});
      else
        place->push_back(created);
    }
    return classes;
  }

  void add_evidence(Finding& finding) const {
    for (const auto& alike : classes()) {
      RankSet ranks;
      for (const Created* const created : alike)
        ranks.insert(created->rank);
      if (finding.evidence.size() < kLinesMax)
        finding
            .tell_of(EvidenceKind::kGroup, ranks, "group {} of {}", number_,
                     words(set_of(alike.front()->list())))
            .at(alike.front()->line);
    }
    if (!passed_.empty())
      finding.tell_of(EvidenceKind::kGroup, passed_, "created group {} as no member of it",
                      number_);
    finding.tell(
        EvidenceKind::kRule, {},
        "PyTorch counts the calls of new_group on each rank, and joins who meets under one number");
  }

  void add_sites(Finding& finding) const {
    for (const auto& alike : classes()) {
      const Created& first = *alike.front();
      if (!first.line || finding.sites.size() >= kLinesMax)
        continue;
      finding.sites.push_back(*first.line);
      if (finding.culprits.contains(first.rank))
        finding.sites.back().role = "culprit";
    }
    std::stable_partition(finding.sites.begin(), finding.sites.end(),
                          [](const SiteRef& site) { return site.role == "culprit"; });
  }

  [[nodiscard]] std::string headline(const RankSet& culprits) const {
    if (!culprits.empty() && culprits == behind_)
      return fmt::format("{} left out the new_group({}){} that {} made", words(behind_),
                         set_of(left_out_->list()).to_string(), at_site(left_out_->line),
                         words(ahead_));
    if (!culprits.empty())
      return fmt::format("{} made a new_group({}){} that {} did not", words(ahead_),
                         set_of(left_out_->list()).to_string(), at_site(left_out_->line),
                         words(behind_));
    std::vector<std::string> sides;
    for (const auto& alike : classes()) {
      RankSet ranks;
      for (const Created* const created : alike)
        ranks.insert(created->rank);
      if (sides.size() < 3)
        sides.push_back(
            fmt::format("of {} by {}", words(set_of(alike.front()->list())), words(ranks)));
    }
    if (sides.size() < 2)
      sides.push_back(fmt::format("without {}", words(passed_)));
    return fmt::format("group {} was created {}", number_, fmt::join(sides, " and "));
  }

  const World& world_;
  std::uint64_t number_;
  std::vector<const Created*> here_{};
  RankSet passed_{};  ///< Members by another rank's list who created another group.
  RankSet behind_{}, ahead_{};
  const Created* left_out_{};
};

}  // namespace

std::vector<Finding> creations_that_differ(const Run& run) {
  std::vector<Finding> findings;
  for (const World& world : worlds_of(run)) {
    if (auto finding = Difference::first_in(world))
      findings.push_back(std::move(*finding));
  }
  return findings;
}

}  // namespace lockstep::checkers
