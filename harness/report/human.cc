#include "harness/report/human.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <string.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "harness/report/finding_text.h"
#include "harness/report/matrix.h"
#include "harness/report/pieces.h"
#include "harness/report/text.h"

namespace lockstep {
namespace {

using namespace report;

constexpr std::size_t kBlocksMax = 20;
constexpr std::size_t kWidthMin = 40;
constexpr std::size_t kWidthMax = 100;

/// A status word, right-aligned, two spaces, and a text whose further lines are indented alike.
std::string status_line(std::string_view word, Paint paint, std::string_view text,
                        const HumanOptions& options) {
  std::string out(kWordWidth - std::min(kWordWidth, word.size()), ' ');
  out += painted(word, paint, options);
  const std::size_t room = options.width - std::min(options.width, kDetailIndent);
  std::string_view indent = "  ";
  for (const std::string& line : wrap(printable(text, options.unicode), room)) {
    out += fmt::format("{}{}\n", indent, line);
    indent = "            ";
  }
  return out;
}

// --- A single run
// -------------------------------------------------------------------------------------------

std::string end_text(const RankStatus& status) {
  if (status.exited)
    return fmt::format("exited with {}", *status.exited);
  if (!status.signaled)
    return "without a recorded end";
  const char* name = sigabbrev_np(*status.signaled);
  return name != nullptr ? fmt::format("killed by SIG{}", name)
                         : fmt::format("killed by signal {}", *status.signaled);
}

/// How the ranks ended: equal ends together, largest group first.
std::string ends_text(const std::vector<RankStatus>& ranks) {
  std::map<std::string, RankSet> groups;
  for (const RankStatus& status : ranks)
    groups[end_text(status)].insert(status.rank);
  std::vector<std::pair<std::string, RankSet>> ordered(groups.begin(), groups.end());
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
  std::string text;
  for (const auto& [end, alike] : ordered) {
    const std::string who = describe(alike, static_cast<std::int32_t>(ranks.size()));
    text += fmt::format("{}{} {}", text.empty() ? "" : "; ", who, end);
  }
  return text;
}

/// A line a world: "phase 1 of 2: ranks 0,1 (pid 4711,4712): rank 0,1 exited with 0".
std::string worlds_text(const Report& report, const HumanOptions& options) {
  constexpr std::size_t kWorldsMax = 12, kPidsMax = 4;
  std::string out;
  for (const WorldReport& world : report.worlds) {
    if (&world - report.worlds.data() == kWorldsMax)
      break;
    RankSet ranks;
    std::vector<std::int32_t> pids;
    for (const RankStatus& status : world.ranks) {
      ranks.insert(status.rank);
      pids.push_back(status.pid);
    }
    const bool more = pids.size() > kPidsMax;
    pids.resize(std::min(pids.size(), kPidsMax));
    out +=
        status_line("ENDED", Paint::kPlain,
                    fmt::format("{}: {} {} (pid {}{}): {}", world.name,
                                ranks.size() == 1 ? "rank" : "ranks", ranks.to_string(),
                                fmt::join(pids, ","), more ? ",..." : "", ends_text(world.ranks)),
                    options);
  }
  if (report.worlds.size() > kWorldsMax)
    out += status_line(
        "", Paint::kPlain,
        fmt::format("and {} more, in report.json", report.worlds.size() - kWorldsMax), options);
  return out;
}

/// "1 group", of "groups".
std::string_view in_number(std::string_view noun, std::uint64_t count) {
  if (count == 1 && noun.ends_with('s'))
    noun.remove_suffix(noun.ends_with("sses") ? 2 : 1);
  return noun;
}

std::string examined_text(const Verdict& check) {
  std::string text;
  for (const auto& [noun, count] : check.examined)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, in_number(noun, count));
  return text;
}

std::string checks_text(const Report& report, const HumanOptions& options) {
  std::string out = worlds_text(report, options);
  if (report.worlds.empty() && !report.ranks.empty())
    out += status_line("ENDED", Paint::kPlain, ends_text(report.ranks), options);
  std::size_t name_width = 0;
  for (const Verdict& check : report.checks)
    name_width = std::max(name_width, check.name.size());
  for (const Verdict& check : report.checks) {
    if (check.outcome == Outcome::kSkipped)  // It has no question for this program.
      continue;
    std::set<Code> codes;
    for (const Finding& finding : check.findings)
      codes.insert(finding.code);
    std::string text = fmt::format("{}", fmt::join(codes, ", "));
    for (const std::string& part :
         {check.reason, examined_text(check), measures_text(check.measures)}) {
      if (!part.empty())
        text += (text.empty() ? "" : "; ") + part;
    }
    out += status_line(word_of(check.outcome), paint_of(check.outcome),
                       fmt::format("{:<{}}  {}", check.name, name_width, text), options);
  }
  return out;
}

// --- Findings and the end
// -----------------------------------------------------------------------------------

std::string blocks_text(const Report& report, const HumanOptions& options) {
  std::vector<std::string> blocks;
  for (const PlacedFinding& placed : all_findings(report))
    blocks.push_back(finding_block(*placed.finding, placed.result, placed.world_size, options));
  for (const CaseReport& result : report.cases) {
    if (result.outcome == Outcome::kUndecided)
      blocks.push_back(undecided_block(result, options));
  }
  if (!report.reason.empty()) {
    Block block(options);
    block.headline(fmt::format("{}: ", name_of(report.outcome)), paint_of(report.outcome),
                   report.reason);
    blocks.push_back(block.text());
  }
  std::string out;
  for (std::size_t i = 0; i < std::min(blocks.size(), kBlocksMax); ++i)
    out += "\n" + blocks[i];
  if (blocks.size() > kBlocksMax)
    out += fmt::format("\nand {} more, in report.json\n", blocks.size() - kBlocksMax);
  return out;
}

/// The directory of the first case that has something to look at; of the run itself outside of a
/// suite.
std::string directory_to_check(const Report& report, const HumanOptions& options) {
  const auto interesting = [&](Outcome outcome) -> const CaseReport* {
    for (const CaseReport& result : report.cases) {
      if (result.outcome == outcome)
        return &result;
    }
    return nullptr;
  };
  const CaseReport* result = interesting(Outcome::kFail);
  if (result == nullptr)
    result = interesting(Outcome::kUndecided);
  if (result == nullptr)
    return options.directory;
  return fmt::format("{}/cases/{}", options.directory, result->id);
}

std::string next_commands(const Report& report, const HumanOptions& options) {
  struct Next {
    std::string_view word, command, purpose;
  };
  std::string check, explain;
  std::vector<Next> next;
  if (const auto findings = all_findings(report); !findings.empty()) {
    explain =
        fmt::format("{} explain {}", shell_word(options.program), findings.front().finding->code);
    next.push_back({"see", explain, "what this code means, what to look at"});
  }
  if (!options.directory.empty()) {
    check = fmt::format("{} check {}", shell_word(options.program),
                        shell_word(directory_to_check(report, options)));
    next.push_back({"again", check, "judge again without running"});
  }
  std::size_t command_width = 0;
  for (const Next& line : next)
    command_width = std::max(command_width, columns(line.command));
  std::string out;
  for (const Next& line : next) {
    // A command stays on one line, to be copied; the purpose gives way.
    const bool fits = kDetailIndent + command_width + 2 + line.purpose.size() <= options.width;
    const std::string text =
        fits ? fmt::format("{:<{}}  {}", line.command, command_width, line.purpose)
             : printable(line.command, options.unicode);
    out += fmt::format("{:>{}}  {}\n", line.word, kWordWidth, text);
  }
  return out;
}

/// "5 of 7 caught; missed: NAME in CASE".
std::string mutants_text(const Report& report) {
  std::size_t count = 0;
  std::vector<std::string> missed;
  for (const CaseReport& result : report.cases) {
    count += result.mutants.size();
    for (const MutantResult& mutant : result.mutants) {
      if (!mutant.caught)
        missed.push_back(mutant.name);
    }
  }
  if (count == 0)
    return {};
  return fmt::format("{} of {} caught{}{}", count - missed.size(), count,
                     missed.empty() ? "" : "; missed: ", fmt::join(missed, ", "));
}

/// "backend gloo, torch 2.15.0".
std::string other_versions(const Report& report) {
  std::string text;
  for (const auto& [name, value] : report.versions) {
    if (name != "lockstep")
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
  }
  return text;
}

std::string summary_text(const Report& report) {
  std::map<Outcome, std::size_t> counts;
  for (const CaseReport& result : report.cases)
    ++counts[result.outcome];
  if (report.cases.empty()) {
    for (const Verdict& check : report.checks)
      ++counts[check.outcome];
  }
  std::set<Code> codes;
  for (const PlacedFinding& placed : all_findings(report)) {
    if (placed.finding->severity == Severity::kError)
      codes.insert(placed.finding->code);
  }
  const std::string which = codes.empty() ? "" : fmt::format(" ({})", fmt::join(codes, ", "));
  std::string text = fmt::format("{} pass, {} fail{}, {} undecided, {} skipped",
                                 counts[Outcome::kPass], counts[Outcome::kFail], which,
                                 counts[Outcome::kUndecided], counts[Outcome::kSkipped]);
  if (report.cases.empty() && report.checks.empty())
    text = fmt::format("{}{}", name_of(report.outcome), which);
  if (!report.worlds.empty())
    text += fmt::format(" in {} sets of ranks", report.worlds.size());
  if (report.program_exit)
    text += fmt::format("; program exit {}", *report.program_exit);
  return report.unseen.empty() ? text : fmt::format("{}; {}", report.unseen, text);
}

/// "4 ranks on 1 host"; "4 ranks on 2 hosts (1 node1: ranks 0,1; 2 node2: ranks 2,3)". That of rank
/// 0 is the first one.
std::string ranks_and_hosts(const Report& report) {
  std::vector<std::pair<std::string, RankSet>> hosts;
  for (const RankStatus& status : report.ranks) {
    if (status.host.empty())
      continue;
    const auto at = std::find_if(hosts.begin(), hosts.end(),
                                 [&](const auto& host) { return host.first == status.host; });
    (at == hosts.end() ? hosts.emplace_back(status.host, RankSet{}) : *at)
        .second.insert(status.rank);
  }
  std::string line =
      fmt::format("{} on {}", count_of(static_cast<std::uint64_t>(*report.world_size), "rank"),
                  count_of(std::max<std::size_t>(hosts.size(), 1), "host"));
  std::vector<std::string> named;
  for (const auto& [host, ranks] : hosts)
    named.push_back(fmt::format("{} {}: {}", named.size() + 1, host, words(ranks)));
  return hosts.size() < 2 ? line : fmt::format("{} ({})", line, fmt::join(named, "; "));
}

}  // namespace

HumanOptions human_options(const Surroundings& surroundings, ColorChoice color) {
  HumanOptions options;
  if (surroundings.terminal && surroundings.columns > 0)
    options.width = std::clamp(surroundings.columns, kWidthMin, kWidthMax);
  const bool plain = !surroundings.no_color.empty() || surroundings.term == "dumb";
  options.color = color == ColorChoice::kAlways ||
                  (color == ColorChoice::kAuto && surroundings.terminal && !plain);
  options.rewrite = surroundings.terminal && surroundings.term != "dumb";
  // The first one that is set decides (setlocale(3)).
  const std::string_view locale = !surroundings.lc_all.empty()     ? surroundings.lc_all
                                  : !surroundings.lc_ctype.empty() ? surroundings.lc_ctype
                                                                   : surroundings.lang;
  constexpr std::string_view spellings[] = {"UTF-8", "utf-8", "UTF8", "utf8"};
  options.unicode = std::any_of(
      std::begin(spellings), std::end(spellings),
      [&](std::string_view spelling) { return locale.find(spelling) != std::string_view::npos; });
  return options;
}

std::string human_header(const Report& report, std::size_t case_count,
                         const HumanOptions& options) {
  const auto version = report.versions.find("lockstep");
  std::string line =
      fmt::format("lockstep {}", version == report.versions.end() ? "" : version->second);
  if (report.world_size) {
    line += "  " + ranks_and_hosts(report);
  } else if (case_count > 0) {
    line += fmt::format("  suite of {}", count_of(case_count, "case"));
  }
  if (const std::string others = other_versions(report); report.world_size && !others.empty())
    line += ", " + others;
  std::string out;
  for (const std::string& text : wrap(printable(line, options.unicode), options.width, 2))
    out += text + "\n";
  if (!options.directory.empty())
    out +=
        fmt::format("history and reports in {}\n", printable(options.directory, options.unicode));
  return out + "\n";
}

std::string human_end(const Report& report, const HumanOptions& options) {
  std::string out = checks_text(report, options) + blocks_text(report, options);
  const std::string next = next_commands(report, options);
  if (!next.empty())
    out += "\n" + next;
  if (const std::string matrix = matrix_text(report, options); !matrix.empty())
    out += "\n" + matrix;
  out += "\n";
  if (const std::string others = other_versions(report); !report.world_size && !others.empty())
    out += status_line("Versions", Paint::kStrong, others, options);
  if (const std::string mutants = mutants_text(report); !mutants.empty())
    out += status_line("Mutants", Paint::kStrong, mutants, options);
  return out + human_summary(report, options);
}

std::string human_summary(const Report& report, const HumanOptions& options) {
  // Never wrapped: the last line is the summary.
  return fmt::format("{}{}  {}  {}\n", std::string(kWordWidth - 7, ' '),
                     painted("Summary", Paint::kStrong, options), duration(report.wall_s),
                     summary_text(report));
}

std::string render_human(const Report& report, const HumanOptions& options) {
  std::string out = human_header(report, report.cases.size(), options);
  for (std::size_t i = 0; i < report.cases.size(); ++i)
    out += human_case(report.cases[i], i + 1, report.cases.size(), options);
  return out + human_end(report, options);
}

}  // namespace lockstep
