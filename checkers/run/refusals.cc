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

Finding finding_of(Code code) {
  Finding finding;
  finding.code = code;
  finding.step = 0;
  finding.confidence = Confidence::kCertain;
  return finding;
}

Finding not_refused(const std::string& message, const std::string& unfit) {
  Finding finding = finding_of(Code::kNotRefused);
  finding.tell(EvidenceKind::kRule, {}, "the case is unfit by its {}, in `{}`", unfit, message);
  return finding;
}

/// Where nothing is to be refused: whether something was.
Verdict of_a_healthy_case(const Run& run, Verdict verdict) {
  // Where one is due the case says so, and marks it once it has come at its time.
  const auto& expected = run.plan.expected_marks;
  const bool due = std::find(expected.begin(), expected.end(), "refused") != expected.end() &&
                   std::any_of(run.marks.begin(), run.marks.end(),
                               [](const Mark& mark) { return mark.name == "refused"; });
  if (run.requests.empty() || due)
    return verdict.skip("a refusal is no fault in this case");
  Finding finding = finding_of(Code::kRefusedInVain);
  for (const Request& request : run.requests) {
    if (request.role != Role::kRank || !request.rank)
      continue;
    verdict.examined["answers"] += 1;
    if (request.outcome != "refused")
      continue;
    finding.affected.insert(*request.rank);
    finding.headline = fmt::format("{} refused `{}`, and nothing in it would have gone wrong",
                                   words(finding.affected), request.message);
    finding.tell_of(EvidenceKind::kException, {*request.rank}, "{}",
                    request.text.substr(0, request.text.find('\n')));
  }
  verdict.outcome = finding.affected.empty() ? Outcome::kPass : Outcome::kFail;
  if (!finding.affected.empty())
    verdict.findings.push_back(std::move(finding));
  return verdict;
}

}  // namespace

Verdict Refusals::check(const Job& job) const {
  const Run& run = job.run();
  Verdict verdict{.name = std::string(name())};
  const std::string message = option(run, "refuses");
  if (message.empty())
    return of_a_healthy_case(run, std::move(verdict));
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
