#include "checkers/exit/descriptor_growth.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "harness/model/begun.h"
#include "harness/model/call_site.h"
#include "harness/model/error_patterns.h"
#include "harness/model/group_view.h"

namespace lockstep::checkers {
namespace {

/// Of the process that is the rank at last.
struct Growth {
  const Descriptors* first{};
  const Descriptors* last{};
};

std::map<Rank, Growth> growths(const Run& run) {
  std::map<Rank, Growth> growths;
  for (const Descriptors& seen : run.descriptors) {
    if (!seen.rank)
      continue;
    Growth& growth = growths[*seen.rank];
    if (growth.first == nullptr || growth.first->pid != seen.pid)
      growth.first = &seen;
    growth.last = &seen;
  }
  return growths;
}

/// Nine tenths of the limit, and most of it came while it ran.
bool is_near_the_limit(const Growth& growth) {
  return growth.last->limit > 0 && growth.last->open * 10 >= growth.last->limit * 9 &&
         growth.first->open * 2 < growth.last->open;
}

std::string in_words(const Descriptors& seen) {
  std::string text = fmt::format("{} of {} open", seen.open, seen.limit);
  for (std::size_t i = 0; i < seen.kinds.size(); ++i)
    text += fmt::format("{} {} {}", i == 0 ? ":" : ",", seen.kinds[i].second, seen.kinds[i].first);
  return text;
}

std::uint64_t collectives_between(const Run& run, const Growth& growth) {
  const Process* process = current_process(run, *growth.last->rank);
  if (process == nullptr)
    return 0;
  return static_cast<std::uint64_t>(std::count_if(
      process->collectives.begin(), process->collectives.end(), [&](const Collective& call) {
        return call.issued_ns >= growth.first->at_ns && call.issued_ns <= growth.last->at_ns;
      }));
}

std::string slope(const Run& run, const Growth& growth) {
  const auto more = static_cast<double>(growth.last->open - growth.first->open);
  const double took_s = static_cast<double>(growth.last->at_ns - growth.first->at_ns) / 1e9;
  std::string text = took_s > 0 ? fmt::format("{:.1f} more a second", more / took_s) : "";
  if (const std::uint64_t calls = collectives_between(run, growth); calls > 0)
    text += fmt::format(", {:.1f} for each collective", more / static_cast<double>(calls));
  return text;
}

/// Then that is the finding, and the checker process-end tells it.
bool said_so_itself(const Run& run, Rank rank) {
  return std::any_of(run.raised.begin(), run.raised.end(), [&](const Raised& raised) {
    return raised.rank == rank && says(raised.text, Says::kNoDescriptor);
  });
}

OpenDescriptors told(const Run& run, Rank rank, const Growth& growth) {
  const auto line = [&](const std::string& text) {
    return evidence_of(EvidenceKind::kResource, {rank}, "{}", text);
  };
  OpenDescriptors open{.opened = files_begun_at(run, *growth.first, *growth.last)};
  open.lines.push_back(line(fmt::format("rank {} had {}", rank.value, in_words(*growth.last))));
  if (growth.first != growth.last)
    open.lines.push_back(
        line(fmt::format("{} at first; {}", growth.first->open, slope(run, growth))));
  if (open.opened)
    open.lines.push_back(line("the files that became more were opened").at(open.opened));
  return open;
}

}  // namespace

OpenDescriptors descriptors_of(const Run& run, Rank rank) {
  const std::map<Rank, Growth> all = growths(run);
  const auto at = all.find(rank);
  return at == all.end() ? OpenDescriptors{} : told(run, rank, at->second);
}

Verdict DescriptorGrowth::check(const Job& job) const {
  const Run& run = job.run();
  Verdict verdict{.name = std::string(name())};
  const std::map<Rank, Growth> all = growths(run);
  verdict.examined["ranks"] = all.size();
  if (all.empty())
    return verdict.skip("no rank's descriptors were counted");
  verdict.outcome = Outcome::kPass;
  for (const auto& [rank, growth] : all) {
    if (!is_near_the_limit(growth) || said_so_itself(run, rank))
      continue;
    Finding finding;
    finding.code = Code::kDescriptors;
    finding.severity = Severity::kWarning;
    finding.at_ns = growth.last->at_ns;
    finding.affected = {rank};
    finding.headline =
        fmt::format("rank {} has {} of {} descriptors open; it began with {}", rank.value,
                    growth.last->open, growth.last->limit, growth.first->open);
    OpenDescriptors open = told(run, rank, growth);
    finding.evidence = std::move(open.lines);
    finding.add(open.opened);
    finding.confidence = Confidence::kCertain;
    finding.help = kHelpWithDescriptors;
    verdict.findings.push_back(std::move(finding));
  }
  return verdict;
}

}  // namespace lockstep::checkers
