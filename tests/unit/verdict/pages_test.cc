// Codes are well-formed and ordered, each has its page; exit statuses stand once.
#include "harness/verdict/pages.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "harness/verdict/exit_codes.h"
#include "harness/verdict/verdict.h"

namespace lockstep {
namespace {

TEST(Codes, RowsAreFilledUniqueAndAscending) {
  std::set<std::string_view> slugs;
  for (std::size_t i = 0; i < kCodes.size(); ++i) {
    const CodeRow& row = kCodes[i];
    SCOPED_TRACE(row.text);
    EXPECT_EQ(row.code, static_cast<Code>(i));
    if (row.code == Code::kNone)
      continue;
    EXPECT_EQ(row.text.size(), 5U);
    EXPECT_EQ(row.text.substr(0, 2), "LS");
    EXPECT_LT(kCodes[i - 1].text, row.text);
    EXPECT_FALSE(row.title.empty());
    EXPECT_LE(row.title.size(), 80U);
    EXPECT_FALSE(row.slug.empty());
    EXPECT_EQ(row.slug.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-"),
              std::string_view::npos);
    EXPECT_TRUE(slugs.insert(row.slug).second) << row.slug;
  }
}

TEST(Codes, AreFoundInAnyCaseAndByWord) {
  ASSERT_NE(find_row("ls301"), nullptr);
  EXPECT_EQ(find_row("absent-rank"), find_row("LS301"));
  EXPECT_EQ(find_row("LS999"), nullptr);
  EXPECT_EQ(find_row(""), nullptr);
}

TEST(Pages, EachCodeHasOneThatBeginsWithItsRow) {
  EXPECT_EQ(kPageCount, kCodes.size() - 1);
  for (const CodeRow& row : kCodes) {
    if (row.code == Code::kNone)
      continue;
    const std::string title = fmt::format("# {} ({}): {}\n", row.text, row.slug, row.title);
    EXPECT_EQ(page_of(row.text).substr(0, title.size()), title);
  }
  EXPECT_EQ(page_of("LS999"), "");
}

TEST(Pages, AreThoseOfTheFolder) {
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(LOCKSTEP_FINDINGS)) {
    if (entry.path().filename() == "README.md")
      continue;
    std::ifstream file(entry.path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    EXPECT_EQ(page_of(entry.path().stem().string()), text) << entry.path();
    ++files;
  }
  EXPECT_EQ(files, kPageCount);
}

TEST(Pages, PlainTextHasNoMarks) {
  EXPECT_EQ(plain_text("# LS1 (a): b\n\n## Fix\n\nDo [this](x.md) and [that](y.md).\n\n"
                       "<!-- from x -->\n```python\n# [a](b)\n```\n"),
            "LS1 (a): b\n\nFix\n  Do this and that.\n\n    # [a](b)\n");
}

TEST(ExitCodes, AreAscendingAndExplained) {
  std::int32_t previous = -1;
  for (const ExitMeaning& exit : kExitMeanings) {
    EXPECT_LT(previous, status_of(exit.code));
    EXPECT_FALSE(exit.meaning.empty());
    previous = status_of(exit.code);
  }
}

TEST(Names, AreTheWordsOfTheReport) {
  EXPECT_EQ(name_of(Outcome::kUndecided), "undecided");
  EXPECT_EQ(name_of(Outcome::kSkipped), "skipped");
  EXPECT_EQ(name_of(Severity::kWarning), "warning");
  EXPECT_EQ(name_of(Confidence::kCertain), "certain");
  EXPECT_EQ(Verdict{}.outcome, Outcome::kUndecided);
}

}  // namespace
}  // namespace lockstep
