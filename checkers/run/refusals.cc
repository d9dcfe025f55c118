#include "checkers/run/refusals.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "harness/model/group_view.h"

namespace lockstep::checkers {
namespace {

std::string option(const Run& run, const char* name) {
  const auto at = run.plan.options.find(name);
  return at == run.plan.options.end() ? "" : at->second;
}

/// By rank: the last request of this message.
std::map<Rank, const Request*> last_requests(const Run& run, const std::string& message) {
  std::map<Rank, const Request*> last;
  for (const Request& request : run.requests) {
    if (request.role == Role::kRank && request.rank && request.message == message)
      last[*request.rank] = &request;
  }
  return last;
}

Finding not_refused(const std::string& message, const std::string& unfit) {
  Finding finding;
  finding.code = Code::kNotRefused;
  finding.step = 0;
  finding.confidence = Confidence::kCertain;
  finding.tell(EvidenceKind::kRule, {}, "the case is unfit by its {}, in `{}`", unfit, message);
  return finding;
}

}  // namespace

Verdict Refusals::check(const Job& job) const {
  const Run& run = job.run();
  Verdict verdict{.name = std::string(name())};
  const std::string message = option(run, "refuses");
  if (message.empty()) {
    verdict.outcome = Outcome::kSkipped;
    verdict.reason = "nothing in this case is to be refused";
    return verdict;
  }
  const std::string naming = option(run, "naming");
  RankSet accepted;
  RankSet refused;
  bool named = naming.empty();
  for (const auto& [rank, request] : last_requests(run, message)) {
    if (request->outcome == "ok")
      accepted.insert(rank);
    if (request->outcome != "refused")
      continue;
    refused.insert(rank);
    named |= request->text.find(naming) != std::string::npos;
    verdict.examined["refusals"] += 1;
  }
  Finding finding = not_refused(message, option(run, "unfit"));
  if (!accepted.empty()) {
    finding.affected = accepted;
    finding.headline = fmt::format("{} accepted what cannot be right", words(accepted));
    verdict.findings.push_back(std::move(finding));
    verdict.outcome = Outcome::kFail;
  } else if (refused != RankSet::all(run.plan.world_size)) {
    verdict.reason = fmt::format("not every rank answered `{}`", message);
  } else if (!named) {
    finding.affected = refused;
    finding.headline = fmt::format("what is wrong was refused, and no rank names {}", naming);
    for (const auto& [rank, request] : last_requests(run, message))
      finding.tell_of(EvidenceKind::kException, {rank}, "{}",
                      request->text.substr(0, request->text.find('\n')));
    verdict.findings.push_back(std::move(finding));
    verdict.outcome = Outcome::kFail;
  } else {
    verdict.outcome = Outcome::kPass;
  }
  return verdict;
}

}  // namespace lockstep::checkers
