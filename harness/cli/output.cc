#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "harness/cli/commands.h"
#include "harness/report/annotations.h"
#include "harness/report/json.h"
#include "harness/report/junit.h"
#include "harness/verdict/exit_codes.h"

namespace lockstep::cli {
namespace {

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

}  // namespace

Result<void> write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.flush();
  if (!file)
    return Error{Error::Kind::kIo, fmt::format("cannot write {}", path),
                 "free some space, or name another place"};
  return {};
}

int report_error(const Error& error) {
  fmt::print(stderr, "lockstep: {}\n", error.what);
  if (!error.help.empty())
    fmt::print(stderr, "  help: {}\n", error.help);
  return status_of(error.kind == Error::Kind::kInterrupted ? ExitCode::kInterrupted
                                                           : ExitCode::kUsage);
}

HumanOptions human_options_here(const Output& output, const std::string& directory,
                                int descriptor) {
  Surroundings here;
  here.terminal = isatty(descriptor) == 1;
  winsize size{};
  if (here.terminal && ioctl(descriptor, TIOCGWINSZ, &size) == 0)
    here.columns = size.ws_col;
  here.no_color = environment("NO_COLOR");
  here.term = environment("TERM");
  here.lc_all = environment("LC_ALL");
  here.lc_ctype = environment("LC_CTYPE");
  here.lang = environment("LANG");
  HumanOptions options = human_options(here, output.color);
  options.directory = shown_path(directory);
  return options;
}

std::string render(const Report& report, const Output& output, const HumanOptions& human) {
  std::error_code failed;
  const std::string here = std::filesystem::current_path(failed).string();
  switch (output.format) {
    case Format::kHuman:
      return render_human(report, human);
    case Format::kJson:
      return render_json(report);
    case Format::kJunit:
      return render_junit(report);
    case Format::kConcise:
      return render_concise(report, human);
    case Format::kSarif:
      return render_sarif(report, here);
    case Format::kGithub:
      return render_github(report, here);
    case Format::kGitlab:
      return render_gitlab(report, here);
    case Format::kMarkdown:
      return render_markdown(report);
  }
  return {};
}

std::string line_text(const SiteRef& site) {
  std::ifstream file(site.file);
  std::string text;
  for (std::int32_t line = 0; line < site.line; ++line) {
    if (!std::getline(file, text))
      return {};
  }
  const std::size_t begin = text.find_first_not_of(" \t");
  return begin == std::string::npos ? "" : text.substr(begin, 300);
}

Result<std::vector<KnownFinding>> read_baseline(const std::string& path) {
  std::ifstream file(path);
  if (!file)
    return Error{Error::Kind::kUsage, fmt::format("cannot read the baseline {}", path),
                 "name the report.json of an earlier run"};
  std::ostringstream text;
  text << file.rdbuf();
  return parse_baseline(text.str(), path);
}

void use_baseline(Report& report, const std::vector<KnownFinding>& known,
                  const std::vector<std::string>& required) {
  const BaselineUse use = apply_baseline(report, known, line_text, required);
  fmt::print(stderr, "lockstep: baseline: {} of its findings {} known here{}\n", use.known,
             use.known == 1 ? "is" : "are", use.gone.empty() ? "" : ", and no longer found:");
  for (const std::string& gone : use.gone)
    fmt::print(stderr, "  {}\n", gone);
}

std::string shown_path(const std::string& path) {
  std::error_code failed;
  const std::filesystem::path relative = std::filesystem::proximate(path, failed);
  return failed || relative.empty() || *relative.begin() == ".." ? path : relative.string();
}

Result<void> save_report(const Report& report, const std::string& directory) {
  if (auto saved = write_file(directory + "/report.json", render_json(report, line_text)); !saved)
    return saved;
  HumanOptions plain;
  plain.directory = shown_path(directory);
  return write_file(directory + "/report.txt", render_human(report, plain));
}

}  // namespace lockstep::cli
