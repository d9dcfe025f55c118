// Rules of the text form that hold for every report, and what the surroundings decide.
#include "harness/report/human.h"

#include <gtest/gtest.h>

#include <regex>
#include <sstream>

#include "harness/report/text.h"
#include "tests/unit/report/samples.h"

namespace lockstep {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    lines.push_back(line);
  return lines;
}

std::string without_color(const std::string& text) {
  return std::regex_replace(text, std::regex("\x1b\\[[0-9;]*m"), "");
}

TEST(Human, ColorOnlyAdds) {
  for (const testing::Sample& sample : testing::all_samples()) {
    HumanOptions options{.color = true, .directory = sample.directory};
    const std::string colored = render_human(sample.report, options);
    EXPECT_NE(colored.find("\x1b["), std::string::npos) << sample.name;
    options.color = false;
    EXPECT_EQ(without_color(colored), render_human(sample.report, options)) << sample.name;
  }
}

TEST(Human, EndsWithTheSummary) {
  for (const testing::Sample& sample : testing::all_samples()) {
    const std::vector<std::string> lines = lines_of(render_human(sample.report, {.width = 60}));
    EXPECT_EQ(lines.back().substr(0, 10), "   Summary") << sample.name;
  }
}

TEST(Human, IsWhatASuitePrintsWhileItRuns) {
  const Report report = testing::failing_suite();
  const HumanOptions options{.directory = ".lockstep/7f3a"};
  std::string streamed = human_header(report, report.cases.size(), options);
  for (std::size_t i = 0; i < report.cases.size(); ++i)
    streamed += human_case(report.cases[i], i + 1, report.cases.size(), options);
  EXPECT_EQ(streamed + human_end(report, options), render_human(report, options));
}

TEST(Human, StaysWithinTheWidth) {
  // A word, a command and the summary may be wider; nothing else.
  for (const testing::Sample& sample : testing::all_samples()) {
    for (const std::string& line : lines_of(render_human(sample.report, {.width = 80}))) {
      const bool exempt = line.find(std::string(100, 'x')) != std::string::npos ||
                          line.starts_with("   Summary") || line.starts_with("     again");
      EXPECT_TRUE(exempt || report::columns(line) <= 80) << sample.name << ": " << line;
    }
  }
}

TEST(Human, NoTrailingSpaces) {
  for (const testing::Sample& sample : testing::all_samples()) {
    for (const std::string& line : lines_of(render_human(sample.report, {})))
      EXPECT_TRUE(line.empty() || line.back() != ' ') << sample.name << ": '" << line << "'";
  }
}

TEST(Human, AsciiWhereTheLocaleIsNot) {
  for (const testing::Sample& sample : testing::all_samples()) {
    for (const char c : render_human(sample.report, {.unicode = false}))
      ASSERT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f))
          << sample.name << ": " << static_cast<int>(c);
  }
}

TEST(Human, CapsTheBlocks) {
  Report report = testing::hang();
  report.findings.assign(50, report.findings.front());
  const std::string text = render_human(report, {});
  EXPECT_NE(text.find("\nand 30 more, in report.json\n"), std::string::npos);
}

TEST(Human, ShowsACauseOnlyWithItsConfidence) {
  Report report = testing::hang();
  report.findings.front().confidence = Confidence::kLikely;
  EXPECT_NE(render_human(report, {}).find("  cause      likely: rank 3"), std::string::npos);
  report.findings.front().confidence = Confidence::kUnknown;
  EXPECT_EQ(render_human(report, {}).find("  cause"), std::string::npos);
}

TEST(Human, AnUndecidedReportSaysWhy) {
  EXPECT_NE(render_human(testing::interrupted(), {})
                .find("undecided: interrupted by SIGINT after 1 of 40 cases"),
            std::string::npos);
}

TEST(Concise, OneLineEach) {
  Report report = testing::hang();
  report.findings.front().headline = "two\nlines";
  EXPECT_EQ(
      render_concise(report, {}),
      "LS301 error  dp#1291  two lines\nundecided  replica-equality  the run did not finish\n");
  EXPECT_EQ(render_concise(testing::healthy_suite(), {}), "");
}

TEST(HumanOptions, OffATerminal) {
  const HumanOptions options =
      human_options({.columns = 60, .lang = "en_US.UTF-8"}, ColorChoice::kAuto);
  EXPECT_EQ(options.width, 100U);
  EXPECT_FALSE(options.color);
  EXPECT_TRUE(options.unicode);
}

TEST(HumanOptions, WidthOfATerminal) {
  const auto width = [](std::size_t columns) {
    return human_options({.terminal = true, .columns = columns}, ColorChoice::kAuto).width;
  };
  EXPECT_EQ(width(80), 80U);
  EXPECT_EQ(width(300), 100U);
  EXPECT_EQ(width(3), 40U);
  EXPECT_EQ(width(0), 100U);
}

TEST(HumanOptions, Color) {
  const auto color = [](const Surroundings& at, ColorChoice choice) {
    return human_options(at, choice).color;
  };
  EXPECT_TRUE(color({.terminal = true}, ColorChoice::kAuto));
  EXPECT_FALSE(color({.terminal = true}, ColorChoice::kNever));
  EXPECT_FALSE(color({.terminal = true, .no_color = "1"}, ColorChoice::kAuto));
  EXPECT_FALSE(color({.terminal = true, .term = "dumb"}, ColorChoice::kAuto));
  EXPECT_TRUE(color({.no_color = "1"}, ColorChoice::kAlways));
}

TEST(HumanOptions, RewritesOnlyWhereTheCursorMoves) {
  const auto rewrite = [](const Surroundings& at) {
    return human_options(at, ColorChoice::kNever).rewrite;
  };
  EXPECT_TRUE(rewrite({.terminal = true, .no_color = "1", .term = "xterm"}));
  EXPECT_FALSE(rewrite({.terminal = true, .term = "dumb"}));
  EXPECT_FALSE(rewrite({.term = "xterm"}));
}

TEST(HumanOptions, TheFirstLocaleVariableDecides) {
  const auto unicode = [](const Surroundings& at) {
    return human_options(at, ColorChoice::kAuto).unicode;
  };
  EXPECT_FALSE(unicode({}));
  EXPECT_TRUE(unicode({.lang = "C.utf8"}));
  EXPECT_TRUE(unicode({.lc_ctype = "de_DE.UTF-8", .lang = "C"}));
  EXPECT_FALSE(unicode({.lc_all = "C", .lc_ctype = "de_DE.UTF-8", .lang = "de_DE.UTF-8"}));
}

}  // namespace
}  // namespace lockstep
