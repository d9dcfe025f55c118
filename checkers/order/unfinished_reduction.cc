#include "checkers/order/unfinished_reduction.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "checkers/blame/attribution.h"
#include "harness/model/call_site.h"
#include "harness/model/coverage.h"
#include "harness/model/error_patterns.h"
#include "harness/model/group_view.h"

namespace lockstep::checkers {
namespace {

const Raised* what_it_says(const Run& run, Rank rank) {
  for (const Raised& raised : run.raised) {
    if (raised.rank == rank && says(raised.text, Says::kUnreduced))
      return &raised;
  }
  return nullptr;
}

/// "2 3", as the exception lists them; empty if it does not.
std::string parameters_in(const std::string& text) {
  const std::size_t list = where_it_says(text, Says::kUnreducedList);
  const std::size_t begin = list == std::string::npos ? list : text.find(": ", list);
  if (begin == std::string::npos)
    return "";
  const std::size_t end = text.find_first_not_of("0123456789 ", begin + 2);
  std::string indices = text.substr(begin + 2, end - begin - 2);
  while (!indices.empty() && indices.back() == ' ')
    indices.pop_back();
  return indices;
}

/// The call that `peer` is in, and `member` came past without it.
const Collective* left_out(const Member& member, const Member& peer) {
  const Collective* call = peer.at(member.issued);
  const bool waits = call != nullptr && (!call->completed_ns || call->failed);
  return member.is_complete && waits ? call : nullptr;
}

/// A group in which ranks that say so came past a call that others wait in.
struct LeftOut {
  const Raised* said{};
  const Collective* call{};
  const Process* waits{};  ///< Whose call it is.
  RankSet culprits{}, waiting{};
};

LeftOut left_out_of(const Run& run, const GroupView& group) {
  LeftOut found;
  for (const Member& member : group.members) {
    const Raised* said = what_it_says(run, member.rank);
    for (const Member& peer : group.members) {
      const bool has_it = said != nullptr && what_it_says(run, peer.rank) == nullptr;
      const Collective* due = has_it ? left_out(member, peer) : nullptr;
      if (due == nullptr || (found.call != nullptr && found.call->seq != due->seq))
        continue;
      if (found.call == nullptr)
        found = {said, due, peer.process, {}, {}};
      found.culprits.insert(member.rank);
      found.waiting.insert(peer.rank);
    }
  }
  return found;
}

std::optional<Finding> finding_in(const Run& run, const GroupView& group) {
  const LeftOut found = left_out_of(run, group);
  if (found.call == nullptr || !known_before(group, found.call->seq))
    return std::nullopt;
  const Collective* call = found.call;
  const Raised* said = found.said;
  Finding finding;
  finding.culprits = found.culprits;
  finding.affected = found.waiting;
  finding.code = Code::kMissingCall;
  finding.group = group.label();
  finding.op = std::string(history::name_of(call->op));
  finding.seq = call->seq;
  finding.at_ns = call->issued_ns;
  finding.confidence = Confidence::kCertain;
  finding.headline =
      fmt::format("{} left out {} in its backward: a parameter got no gradient; {} wait{} in it",
                  words(finding.culprits), group.label(*call), words(finding.affected),
                  finding.affected.size() == 1 ? "s" : "");
  finding.add(site_of(*said->rank, said->raised_at.frames, "culprit"));
  finding.add(site_of(*found.waits, *call, "peer"));
  if (const std::string indices = parameters_in(said->text); !indices.empty())
    finding.tell_of(EvidenceKind::kException, {*said->rank},
                    "no gradient for the parameters {} (by index, as in model.parameters())",
                    indices);
  finding.cause =
      "a branch of the model that this rank did not use, or parameters that it froze after DDP had "
      "taken them; DDP waits for every parameter unless find_unused_parameters=True";
  return finding;
}

}  // namespace

Verdict UnfinishedReduction::check(const Job& job) const {
  const Run& run = job.run();
  Verdict verdict{.name = std::string(name())};
  if (run.raised.empty())
    return verdict.skip("no process printed an exception");
  for (const GroupView& group : job.groups()) {
    auto finding = finding_in(run, group);
    if (!finding)
      continue;
    return verdict.fail(std::move(*finding));
  }
  if (journal_is_whole(run))
    verdict.outcome = Outcome::kPass;
  else
    verdict.because(why_open(run));
  return verdict;
}

}  // namespace lockstep::checkers
