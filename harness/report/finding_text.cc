#include "harness/report/finding_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "harness/report/text.h"

namespace lockstep::report {
namespace {

constexpr std::size_t kLabelWidth = 11;  // "ruled out" and two spaces
constexpr std::size_t kIndent = 2;
constexpr std::size_t kWidthMin = 40;
constexpr std::size_t kEvidenceLinesMax = 40;
constexpr std::size_t kListLinesMax = 10;
constexpr std::size_t kNamesMax = 8;

Paint paint_of(Severity severity) {
  return severity == Severity::kError     ? Paint::kBad
         : severity == Severity::kWarning ? Paint::kDoubt
                                          : Paint::kStrong;
}

/// Sites with the ranks that share them, largest group first, then by rank.
std::vector<std::pair<RankSet, SiteRef>> grouped_sites(const std::vector<SiteRef>& sites) {
  using Key = std::tuple<std::string_view, std::string_view, std::int32_t, std::string_view>;
  std::map<Key, std::pair<RankSet, SiteRef>> groups;
  for (const SiteRef& site : sites) {
    auto& [ranks, shown] = groups[Key{site.role, site.file, site.line, site.function}];
    ranks.insert(site.rank);
    shown = site;
  }
  std::vector<std::pair<RankSet, SiteRef>> ordered;
  ordered.reserve(groups.size());
  for (auto& entry : groups)
    ordered.push_back(std::move(entry.second));
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) {
    if (a.first.size() != b.first.size())
      return a.first.size() > b.first.size();
    return *a.first.begin() < *b.first.begin();
  });
  return ordered;
}

std::string position_text(const SiteRef& site) {
  const std::string_view file = site.file.empty() ? "(no file)" : std::string_view(site.file);
  return site.line > 0 ? fmt::format("{}:{}", file, site.line) : std::string(file);
}

/// A table of three columns: ranks, role, function and place.
std::vector<std::string> site_lines(const std::vector<SiteRef>& sites, std::int32_t world_size) {
  std::vector<std::string> lines;
  std::size_t ranks_width = 0, role_width = 0, position_width = 0;
  const auto groups = grouped_sites(sites);
  for (const auto& [ranks, site] : groups) {
    ranks_width = std::max(ranks_width, columns(describe(ranks, world_size)));
    role_width = std::max(role_width, columns(site.role));
    position_width = std::max(position_width, columns(position_text(site)));
  }
  for (const auto& [ranks, site] : groups) {
    std::string line =
        fmt::format("{:<{}}  {:<{}}  {:<{}}  {}", describe(ranks, world_size), ranks_width,
                    site.role, role_width, position_text(site), position_width, site.function);
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(std::move(line));
  }
  return lines;
}

std::string ranks_line(const RankSet& ranks, std::int32_t world_size) {
  std::string text = describe(ranks, world_size);
  if (ranks.size() < 2 || world_size < 1 || text.starts_with("all "))
    return text;
  return fmt::format("{} ({} of {})", text, ranks.size(), world_size);
}

std::string names_line(const std::vector<std::string>& names) {
  const std::size_t shown = std::min(names.size(), kNamesMax);
  std::string text = fmt::format(
      "{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (shown < names.size())
    text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

std::string place_line(const Finding& finding) {
  std::string text = operation_text(finding, true);
  if (finding.step)
    text += fmt::format("{}step {}", text.empty() ? "" : ", ", *finding.step);
  return text;
}

std::string consequences_line(std::uint64_t count) {
  if (count == 0)
    return {};
  return fmt::format("{} of this divergence {} not shown", count_of(count, "later consequence"),
                     count == 1 ? "is" : "are");
}

}  // namespace

std::string painted(std::string_view text, Paint paint, const HumanOptions& options) {
  constexpr std::string_view codes[] = {"", "1;31", "32", "1;33", "2", "1"};
  if (!options.color || paint == Paint::kPlain)
    return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", codes[static_cast<std::size_t>(paint)], text);
}

void Block::headline(std::string_view sign, Paint paint, std::string_view text) {
  const std::string whole = std::string(sign) + printable(text, options_.unicode);
  const std::vector<std::string> lines = wrap(whole, options_.width, columns(sign));
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::size_t signed_bytes = i == 0 ? std::min(sign.size(), lines[i].size()) : 0;
    if (signed_bytes > 0)
      text_ += painted(lines[i].substr(0, signed_bytes), paint, options_);
    text_ += painted(lines[i].substr(signed_bytes), Paint::kStrong, options_) + "\n";
  }
}

void Block::line(std::string_view label, std::string_view text) {
  if (!text.empty())
    list(label, {std::string(text)}, 1);
}

void Block::list(std::string_view label, const std::vector<std::string>& texts,
                 std::size_t shown_max) {
  const std::size_t shown = std::min(texts.size(), shown_max);
  for (std::size_t i = 0; i < shown; ++i) {
    for (const std::string& line : wrap(printable(texts[i], options_.unicode), room(), 2)) {
      labelled(label, line);
      label = {};
    }
  }
  if (shown < texts.size())
    labelled(label, fmt::format("and {} more, in report.json", texts.size() - shown));
}

void Block::command(std::string_view label, std::string_view text) {
  const std::vector<std::string> lines = wrap(printable(text, options_.unicode), room() - 2, 2);
  for (std::size_t i = 0; i < lines.size(); ++i)
    labelled(i == 0 ? label : "", i + 1 < lines.size() ? lines[i] + " \\" : lines[i]);
}

void Block::labelled(std::string_view label, std::string_view line) {
  const std::string padding(kLabelWidth - std::min(kLabelWidth, label.size()), ' ');
  text_ += std::string(kIndent, ' ') +
           painted(label, label.empty() ? Paint::kPlain : Paint::kDim, options_);
  text_ += padding + std::string(line);
  text_.erase(text_.find_last_not_of(' ') + 1);
  text_ += '\n';
}

std::size_t Block::room() const {
  return std::max(options_.width, kWidthMin) - kIndent - kLabelWidth;
}

std::string finding_block(const Finding& finding, const CaseReport* result, std::int32_t world_size,
                          const HumanOptions& options) {
  Block block(options);
  block.headline(fmt::format("{}[{}]: ", name_of(finding.severity), finding.code),
                 paint_of(finding.severity), finding.headline);
  if (result != nullptr)
    block.line("case", result->id);
  block.line("at", place_line(finding));
  if (!finding.culprits.empty())
    block.line("culprit", ranks_line(finding.culprits, world_size));
  else if (finding.severity == Severity::kError)
    block.line("culprit", "none: the evidence singles out no rank");
  if (!finding.affected.empty())
    block.line("affected", ranks_line(finding.affected, world_size));
  block.line("tensors", names_line(finding.names));
  block.list("evidence", texts_of(finding.evidence), kEvidenceLinesMax);
  block.list("where", site_lines(finding.sites, world_size), kListLinesMax);
  if (!finding.cause.empty() && finding.confidence != Confidence::kUnknown)
    block.line("cause", fmt::format("{}: {}", name_of(finding.confidence), finding.cause));
  block.list("ruled out", finding.ruled_out, kListLinesMax);
  block.list("unseen", finding.unseen, kListLinesMax);
  block.line("also", fmt::format("{}", fmt::join(finding.also, ", ")));
  block.line("follows", consequences_line(finding.consequences));
  block.line("help", finding.help);
  if (result != nullptr)
    block.command("repeat", rerun_command(*result, options));
  return block.text();
}

std::string undecided_block(const CaseReport& result, const HumanOptions& options) {
  Block block(options);
  block.headline("undecided: ", Paint::kDoubt, result.id);
  std::vector<std::string> missed;
  for (const MutantResult& mutant : result.mutants) {
    if (!mutant.caught)
      missed.push_back("mutant " + missed_mutant(mutant));
  }
  if (!said_by(result.reason, missed))
    block.line("reason", result.reason);
  block.list(said_by(result.reason, missed) ? "reason" : "mutants", missed, kListLinesMax);
  if (!result.required)
    block.line("counts", "no: a case that is not required leaves the exit status as it is");
  block.command("repeat", rerun_command(result, options));
  return block.text();
}

bool said_by(std::string_view reason, const std::vector<std::string>& lines) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return line.starts_with(reason); });
}

std::string operation_text(const Finding& finding, bool with_op) {
  std::string text = with_op ? finding.op : "";
  if (finding.group.empty() && !finding.seq)
    return text;
  text += fmt::format("{}{}", text.empty() ? "" : " ", finding.group);
  return finding.seq ? fmt::format("{}#{}", text, *finding.seq) : text;
}

std::string missed_mutant(const MutantResult& mutant) {
  const auto by = [](const RankSet& ranks) {
    return ranks.empty() ? "without a culprit" : "by " + describe(ranks);
  };
  const std::string got =
      mutant.got.empty() ? "nothing"
                         : fmt::format("{} {}", fmt::join(mutant.got, ", "), by(mutant.culprits));
  return fmt::format("{} not caught: expected {} {}, got {}", mutant.name, mutant.expected,
                     by(mutant.expected_culprits), got);
}

std::string rerun_command(const CaseReport& result, const HumanOptions& options) {
  const std::string named = result.subject == CaseReport{}.subject ? "" : result.subject + " ";
  return fmt::format("{} suite {}--case {} --seed {}", shell_word(options.program), named,
                     shell_word(result.id), result.seed);
}

}  // namespace lockstep::report
