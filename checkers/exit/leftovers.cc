#include "checkers/exit/leftovers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/history/hosts.h"
#include "harness/model/begun.h"
#include "harness/model/call_site.h"
#include "harness/model/coverage.h"
#include "harness/model/group_view.h"

namespace lockstep::checkers {
namespace {

constexpr std::size_t kListedMax = 8;

/// A rank whose launcher was killed.
bool is_orphan(const Run& run, std::int32_t pid) {
  return std::any_of(run.launcher_ends.begin(), run.launcher_ends.end(), [&](const auto& launcher) {
    return std::find(launcher.pids.begin(), launcher.pids.end(), pid) != launcher.pids.end();
  });
}

/// Somebody of the job was ended by us: what is there afterwards is our doing.
bool we_ended_it(const Run& run) {
  return std::any_of(run.ends.begin(), run.ends.end(),
                     [&](const ProcessEnd& end) {
                       return end.our_signal.has_value() && !is_orphan(run, end.pid);
                     }) ||
         std::any_of(run.acted.begin(), run.acted.end(),
                     [](const Acted& act) { return act.action != "KILL"; });
}

/// Who is killed cannot remove what it made: that is told with its death.
bool one_ended_badly(const Run& run) {
  return std::any_of(run.ends.begin(), run.ends.end(),
                     [](const ProcessEnd& end) { return end.role == Role::kRank && end.failed(); });
}

std::string from_rank(const Leftover& left) {
  return left.rank ? fmt::format(" of rank {}", left.rank->value) : "";
}

std::string seconds(std::uint64_t ns) {
  return fmt::format("{:.1f} s", static_cast<double>(ns) / 1e9);
}

RankSet origins(const std::vector<const Leftover*>& left) {
  RankSet ranks;
  for (const Leftover* each : left) {
    if (!each->rank)
      return {};
    ranks.insert(*each->rank);
  }
  return ranks;
}

void list(Finding& finding, const std::vector<Evidence>& lines) {
  for (std::size_t i = 0; i < std::min(lines.size(), kListedMax); ++i)
    finding.evidence.push_back(lines[i]);
  if (lines.size() > kListedMax)
    finding.tell(lines.back().kind, {}, "and {} more", lines.size() - kListedMax);
}

Evidence process_line(const Leftover& left) {
  Evidence evidence = evidence_of(EvidenceKind::kProcess, as_set(left.rank), "{}: {}",
                                  history::words_of_pid(left.pid), left.name);
  std::string& line = evidence.text;
  if (left.rank)
    line += fmt::format(", of rank {}", left.rank->value);
  if (left.parent > 0)
    line +=
        fmt::format(", started by {} ({})", history::words_of_pid(left.parent), left.parent_name);
  for (const std::string& port : left.ports)
    line += fmt::format(", listens on {}", port);
  if (!left.gpus.empty())
    line += fmt::format(", keeps what it has of the memory of {}", fmt::join(left.gpus, ", "));
  return evidence;
}

Finding about(Code code, const std::vector<const Leftover*>& left) {
  Finding finding;
  finding.code = code;
  finding.at_ns = left.front()->at_ns;
  finding.confidence = Confidence::kCertain;
  finding.culprits = origins(left);
  return finding;
}

/// ", started at train.py:12", or empty.
std::string started_at(const std::optional<SiteRef>& site, std::string_view end = ",") {
  return site ? fmt::format(", started{}{}", at_site(site), end) : "";
}

/// Each line of a rank once.
void add_site(Finding& finding, const std::optional<SiteRef>& site) {
  const auto is_it = [&](const SiteRef& known) {
    return known.rank == site->rank && known.file == site->file && known.line == site->line;
  };
  if (site && std::none_of(finding.sites.begin(), finding.sites.end(), is_it))
    finding.sites.push_back(*site);
}

/// What they hold is left, too.
void list_processes(Finding& finding, const std::vector<const Leftover*>& processes) {
  std::vector<Evidence> lines;
  for (const Leftover* each : processes) {
    lines.push_back(process_line(*each));
    if (!(each->ports.empty() && each->gpus.empty()) && finding.also.empty())
      finding.also.push_back(Code::kLeftover);
  }
  list(finding, lines);
}

Finding processes_left(const Run& run, const std::vector<const Leftover*>& left) {
  const Leftover& first = *left.front();
  const std::optional<SiteRef> line = process_begun_at(run, first);
  Finding finding = about(Code::kOrphan, left);
  finding.headline =
      left.size() == 1
          ? fmt::format("{} ({}){}{} outlived the job", history::words_of_pid(first.pid),
                        first.name, from_rank(first), started_at(line))
          : fmt::format("{} processes outlived the job; the first is {} ({}){}{}", left.size(),
                        history::words_of_pid(first.pid), first.name, from_rank(first),
                        started_at(line, ""));
  list_processes(finding, left);
  for (const Leftover* each : left)
    add_site(finding, process_begun_at(run, *each));
  finding.help =
      "end it and wait for it before the program ends; if it is meant to stay, --allow-survivor "
      "NAME";
  return finding;
}

Finding segments_left(const Run&, const std::vector<const Leftover*>& left) {
  Finding finding = about(Code::kLeftover, left);
  std::uint64_t bytes = 0;
  std::vector<Evidence> lines;
  for (const Leftover* each : left) {
    bytes += each->bytes;
    lines.push_back(evidence_of(EvidenceKind::kResource, as_set(each->rank),
                                "{}  {} bytes, made by {}{}, which is gone", each->name,
                                each->bytes, history::words_of_pid(each->pid), from_rank(*each)));
  }
  finding.headline = left.size() == 1
                         ? fmt::format("{} is left in shared memory, {} bytes, and nobody has it",
                                       left.front()->name, bytes)
                         : fmt::format(
                               "{} segments of shared memory are left, {} bytes, and nobody "
                               "has them; the first is {}",
                               left.size(), bytes, left.front()->name);
  list(finding, lines);
  finding.help =
      "whoever makes a segment must unlink it; with the sharing strategy file_system that is "
      "torch_shm_manager's work, which a SIGKILL cuts short: file_descriptor leaves nothing";
  return finding;
}

std::vector<Evidence> paths_of(const std::vector<const Leftover*>& left) {
  std::vector<Evidence> lines;
  for (const Leftover* each : left)
    lines.push_back(evidence_of(EvidenceKind::kResource, as_set(each->rank),
                                "{}  of {}{}, which is gone", each->name,
                                history::words_of_pid(each->pid), from_rank(*each)));
  return lines;
}

Finding locks_left(const Run&, const std::vector<const Leftover*>& left) {
  Finding finding = about(Code::kLeftover, left);
  finding.headline = fmt::format(
      "the lock {} is left, and nobody has it: whoever loads that "
      "extension next waits for ever",
      left.front()->name);
  list(finding, paths_of(left));
  finding.help = "remove it; torch.utils.cpp_extension does so itself unless it is killed";
  return finding;
}

/// No fault: a helper that is ended with its program (`daemon=True`) leaves its own, too.
Finding directories_left(const Run&, const std::vector<const Leftover*>& left) {
  Finding finding = about(Code::kLeftover, left);
  finding.severity = Severity::kNote;
  finding.culprits = {};
  finding.headline = left.size() == 1
                         ? fmt::format("{} is left, a temporary directory{}", left.front()->name,
                                       from_rank(*left.front()))
                         : fmt::format("{} temporary directories are left; the first is {}",
                                       left.size(), left.front()->name);
  list(finding, paths_of(left));
  finding.help =
      "remove it; whoever made it does so itself unless it is killed (Process.kill, os._exit)";
  return finding;
}

/// Nobody asked for them, to the end.
Finding never_asked_for(const std::vector<const Unwaited*>& zombies) {
  const Unwaited& first = *zombies.front();
  Finding finding;
  finding.code = Code::kZombie;
  finding.severity = Severity::kWarning;
  finding.at_ns = first.since_ns;
  finding.confidence = Confidence::kCertain;
  finding.headline = fmt::format(
      "{} ({}) had ended and was a zombie for {}: its parent, {} ({}), never waited for it",
      history::words_of_pid(first.pid), first.name, seconds(first.at_ns - first.since_ns),
      history::words_of_pid(first.parent), first.parent_name);
  std::vector<Evidence> lines;
  for (std::size_t i = 1; i < zombies.size(); ++i)
    lines.push_back(evidence_of(EvidenceKind::kProcess, {}, "{} ({}) for {}, child of {} ({})",
                                history::words_of_pid(zombies[i]->pid), zombies[i]->name,
                                seconds(zombies[i]->at_ns - zombies[i]->since_ns),
                                history::words_of_pid(zombies[i]->parent),
                                zombies[i]->parent_name));
  list(finding, lines);
  finding.help = "Popen.wait(), Process.join(): else nobody learns how it ended";
  return finding;
}

/// What its launcher left behind and had to be ended; `processes`: as it was found. None if all of
/// it ended by itself.
std::optional<Finding> orphans_left(const Run& run, const LauncherEnd& launcher,
                                    const std::vector<const Leftover*>& processes) {
  Finding finding;
  finding.code = Code::kOrphan;
  finding.at_ns = launcher.at_ns;
  finding.confidence = Confidence::kCertain;
  for (const ProcessEnd& end : run.ends) {
    if (end.rank && end.our_signal && launcher.ranks.contains(*end.rank) &&
        std::find(launcher.pids.begin(), launcher.pids.end(), end.pid) != launcher.pids.end())
      finding.affected.insert(*end.rank);
  }
  if (finding.affected.empty())
    return std::nullopt;
  const bool one = finding.affected.size() == 1;
  finding.headline = fmt::format("{} and left {} {} behind: {}, which {} ended", in_words(launcher),
                                 finding.affected.size(), one ? "rank" : "ranks",
                                 words(finding.affected), one ? "was" : "were");
  list_processes(finding, processes);
  finding.help =
      "see who sent it: a scheduler before its time limit, the kernel where memory ran out; ranks "
      "go on where their launcher cannot end them any more";
  return finding;
}

/// "rank 0 (pid 7)", of a rank; else "pid 7 (python)".
std::string who_is(const Run& run, std::int32_t pid, const std::string& name) {
  const auto start = std::find_if(run.starts.begin(), run.starts.end(),
                                  [&](const auto& s) { return s.pid == pid && s.rank; });
  return start == run.starts.end()
             ? fmt::format("{} ({})", history::words_of_pid(pid), name)
             : fmt::format("rank {} ({})", start->rank->value, history::words_of_pid(pid));
}

bool is_rank(const Run& run, std::int32_t pid) {
  return std::any_of(run.starts.begin(), run.starts.end(),
                     [&](const auto& start) { return start.pid == pid && start.rank; });
}

/// How a rank ended is known here; that whoever started it does not know is no mistake of the job.
Finding rank_not_waited_for(const Run& run, const Unwaited& zombie) {
  Finding finding;
  finding.code = Code::kZombie;
  finding.severity = Severity::kNote;
  finding.at_ns = zombie.since_ns;
  finding.confidence = Confidence::kCertain;
  finding.headline =
      fmt::format("{} did not wait for {}, which had ended and was a zombie for {}",
                  who_is(run, zombie.parent, zombie.parent_name),
                  who_is(run, zombie.pid, zombie.name), seconds(zombie.at_ns - zombie.since_ns));
  finding.help = "Popen.wait(), Process.join(): else nobody learns how it ended";
  return finding;
}

}  // namespace

Verdict Leftovers::check(const Job& job) const {
  const Run& run = job.run();
  Verdict verdict{.name = std::string(name())};
  if (!run.journal_complete)  // Nor is it known whether we ended the job, and so what it left.
    return verdict.because(why_open(run));
  std::map<std::string_view, std::vector<const Leftover*>> left;  // By kind.
  std::vector<const Unwaited*> zombies, ranks;
  if (!we_ended_it(run)) {
    for (const Leftover& each : run.leftovers) {
      if (each.kind != "directory" || !one_ended_badly(run))
        left[each.kind].push_back(&each);
    }
    for (const Unwaited& unwaited : run.unwaited) {
      if (!unwaited.taken)
        (is_rank(run, unwaited.pid) ? ranks : zombies).push_back(&unwaited);
    }
  }
  if (const LauncherEnd* const killed = launcher_killed(run)) {
    if (auto finding = orphans_left(run, *killed, left["process"]))
      verdict.findings.push_back(std::move(*finding));
    if (!verdict.findings.empty() || left["process"].empty())
      left.erase("process");
  }
  using Tell = Finding (*)(const Run&, const std::vector<const Leftover*>&);
  constexpr std::array<std::pair<std::string_view, Tell>, 4> kKinds{
      {{"process", processes_left},
       {"segment", segments_left},
       {"lock", locks_left},
       {"directory", directories_left}}};
  for (const auto& [kind, tell] : kKinds) {
    if (const auto at = left.find(kind); at != left.end())
      verdict.findings.push_back(tell(run, at->second));
  }
  const bool wrong =
      std::any_of(verdict.findings.begin(), verdict.findings.end(),
                  [](const Finding& finding) { return finding.severity == Severity::kError; });
  if (!zombies.empty())
    verdict.findings.push_back(never_asked_for(zombies));
  for (const Unwaited* const rank : ranks)
    verdict.findings.push_back(rank_not_waited_for(run, *rank));
  if (wrong)
    verdict.outcome = Outcome::kFail;
  else
    verdict.outcome = we_ended_it(run) ? Outcome::kSkipped : Outcome::kPass;
  if (verdict.outcome == Outcome::kSkipped)
    verdict.reason = "the job was ended by lockstep: what is there afterwards is its doing";
  return verdict;
}

std::string noticed_late(const Run& run, Rank rank) {
  for (const Unwaited& unwaited : run.unwaited) {
    const auto is_it = [&](const auto& event) {
      return event.role == Role::kRank && event.rank == rank && event.pid == unwaited.pid;
    };
    const std::optional<std::int32_t> other = unwaited.parent_waits_for;
    if (!other || *other <= 0 || *other == unwaited.pid ||
        std::none_of(run.ends.begin(), run.ends.end(), is_it))
      continue;
    const auto named = std::find_if(run.starts.begin(), run.starts.end(), [&](const auto& start) {
      return start.pid == *other && start.rank;
    });
    const std::string whom =
        named == run.starts.end()
            ? history::words_of_pid(*other)
            : fmt::format("rank {} ({})", named->rank->value, history::words_of_pid(*other));
    const std::string how_long = seconds(unwaited.at_ns - unwaited.since_ns);
    return fmt::format("its launcher, {} ({}), was waiting for {} and {}",
                       history::words_of_pid(unwaited.parent), unwaited.parent_name, whom,
                       unwaited.taken ? fmt::format("noticed it {} later", how_long)
                                      : fmt::format("had not noticed it after {}", how_long));
  }
  return "";
}

}  // namespace lockstep::checkers
