#include "checkers/watch/wrapped_modules.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkers/blame/attribution.h"
#include "checkers/watch/parted.h"
#include "checkers/watch/watch_coverage.h"
#include "harness/model/coverage.h"
#include "harness/model/watched_series.h"

namespace lockstep::checkers {
namespace {

/// The tensors of a module in the order in which they are sent and reduced: by that alone are they
/// known then.
using Tensors = std::vector<const WatchedTensor*>;

struct Wrapped {
  const Member* member{};
  Tensors tensors{};
};

/// Of one group, by replica, as each member has it.
std::map<std::uint32_t, std::vector<Wrapped>> wrapped_in(const GroupView& group) {
  std::map<std::uint32_t, std::vector<Wrapped>> all;
  for (const Member& member : group.members) {
    std::map<std::uint32_t, Wrapped> its;
    for (const WatchedTensor& tensor : member.process->watched->tensors) {
      if (member.process->watched->dropped > 0)
        break;
      if (tensor.group != member.group || !tensor.at_start || tensor.ignored || tensor.loose)
        continue;
      Wrapped& wrapped = its[tensor.replica];
      wrapped.member = &member;
      wrapped.tensors.push_back(&tensor);
    }
    for (auto& [replica, wrapped] : its)
      all[replica].push_back(std::move(wrapped));
  }
  std::erase_if(all,
                [&](const auto& replica) { return replica.second.size() != group.members.size(); });
  return all;
}

std::vector<std::string> names_of(const Wrapped& wrapped) {
  std::vector<std::string> names;
  for (const WatchedTensor* const tensor : wrapped.tensors)
    names.push_back(tensor->name);
  return names;
}

/// Where the one has another tensor than the other; none: nowhere. What one has no room for, or no
/// time, is not known to be missing.
std::optional<std::size_t> first_difference(const Wrapped& a, const Wrapped& b) {
  const std::vector<std::string> one = names_of(a), other = names_of(b);
  const auto at = std::mismatch(one.begin(), one.end(), other.begin(), other.end());
  if (at.first == one.end() || at.second == other.end())
    return std::nullopt;
  return static_cast<std::size_t>(at.first - one.begin());
}

/// The same names in another order: what is one's is reduced with what is another's.
bool is_reordered(const Wrapped& a, const Wrapped& b) {
  std::vector<std::string> one = names_of(a), other = names_of(b);
  std::sort(one.begin(), one.end());
  std::sort(other.begin(), other.end());
  return one == other;
}

std::string tensor_at(const Wrapped& wrapped, std::size_t at) {
  return fmt::format("{} ({} elements)", wrapped.tensors[at]->name, wrapped.tensors[at]->numel);
}

std::optional<Finding> difference(const Run& run, const GroupView& group,
                                  const std::vector<Wrapped>& all) {
  const Wrapped& first = all.front();
  std::map<std::vector<std::string>, RankSet> by_names;
  const Wrapped* other = nullptr;
  bool reordered = true;
  for (const Wrapped& wrapped : all) {
    by_names[names_of(wrapped)].insert(wrapped.member->rank);
    if (!first_difference(first, wrapped))
      continue;
    other = other == nullptr ? &wrapped : other;
    reordered = reordered && is_reordered(first, wrapped);
  }
  if (other == nullptr)
    return std::nullopt;
  const std::size_t at = *first_difference(first, *other);
  std::vector<RankSet> classes;
  for (auto& [names, ranks] : by_names)
    classes.push_back(ranks);
  Finding finding{.code = Code::kInitialValue, .confidence = Confidence::kCertain};
  // Where names differ the layers may be the same ones all the same: named by the rank, say.
  finding.severity = reordered ? Severity::kError : Severity::kNote;
  finding.group = group.label();
  finding.culprits = blame_minority(group, classes, run.journal_complete).culprits;
  for (const Wrapped& wrapped : all) {
    if (!finding.culprits.contains(wrapped.member->rank))
      finding.affected.insert(wrapped.member->rank);
  }
  const Rank one = first.member->rank, another = other->member->rank;
  finding.headline =
      fmt::format("the module has {} on {} than on {}",
                  reordered ? "its tensors in another order" : "tensors of other names",
                  words({another}), words({one}));
  finding.tell(EvidenceKind::kValue, {one, another}, "at place {}: {} on {}, {} on {}", at,
               tensor_at(first, at), words({one}), tensor_at(*other, at), words({another}));
  finding.cause =
      "tensors are sent when the module is wrapped, and gradients reduced later, by their place: "
      "what has one name on one rank is mixed with what has another name elsewhere";
  finding.names = {first.tensors[at]->name, other->tensors[at]->name};
  add_site_of_module(*first.member, *first.tensors.front(), finding);
  return finding;
}

}  // namespace

Verdict WrappedModules::check(const Job& job) const {
  Verdict verdict{.name = std::string(name()), .outcome = Outcome::kSkipped};
  const WatchCoverage coverage = watch_coverage(job.run());
  std::int64_t modules = 0;
  for (const GroupView& group : job.groups()) {
    if (!is_watched(group))
      continue;
    for (const auto& [replica, all] : wrapped_in(group)) {
      ++modules;
      if (auto found = difference(job.run(), group, all))
        verdict.findings.push_back(std::move(*found));
    }
  }
  verdict.examined["modules"] = static_cast<std::uint64_t>(modules);
  if (!coverage.asked)
    verdict.reason = "values were not watched";
  else if (modules == 0)
    verdict.reason = "no module was seen that DistributedDataParallel was put around on all ranks";
  else
    verdict.outcome = std::any_of(verdict.findings.begin(), verdict.findings.end(),
                                  [](const Finding& f) { return f.severity == Severity::kError; })
                          ? Outcome::kFail
                          : Outcome::kPass;
  return verdict;
}

}  // namespace lockstep::checkers
