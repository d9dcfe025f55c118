// The catalogue is complete, well-formed, and ordered; exit statuses stand once.
#include "harness/verdict/catalogue.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "harness/verdict/exit_codes.h"
#include "harness/verdict/verdict.h"

namespace lockstep {
namespace {

TEST(Catalogue, EveryEntryIsFilled) {
  for (const CatalogueEntry& entry : catalogue()) {
    SCOPED_TRACE(entry.code);
    EXPECT_EQ(entry.code.size(), 5U);
    EXPECT_EQ(entry.code.substr(0, 2), "LS");
    for (const std::string_view text :
         {entry.slug, entry.title, entry.meaning, entry.causes, entry.look_at})
      EXPECT_FALSE(text.empty());
    EXPECT_LE(entry.title.size(), 80U);
    EXPECT_EQ(entry.meaning.back(), '.');
    EXPECT_NE(entry.causes.back(), '\n');
    EXPECT_EQ(entry.slug.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-"),
              std::string_view::npos);
  }
}

TEST(Catalogue, CodesAndSlugsAreUniqueAndAscending) {
  std::set<std::string_view> slugs;
  std::string_view previous;
  for (const CatalogueEntry& entry : catalogue()) {
    EXPECT_LT(previous, entry.code);
    EXPECT_TRUE(slugs.insert(entry.slug).second) << entry.slug;
    previous = entry.code;
  }
}

TEST(Catalogue, EveryCodeHasItsEntryAndItsRow) {
  ASSERT_EQ(kCodes.size(), catalogue().size() + 1);
  for (std::size_t i = 0; i < kCodes.size(); ++i)
    EXPECT_EQ(kCodes[i].code, static_cast<Code>(i)) << kCodes[i].text;
  for (std::size_t i = 0; i < catalogue().size(); ++i) {
    EXPECT_EQ(catalogue()[i].code, kCodes[i + 1].text);
    EXPECT_EQ(catalogue()[i].slug, kCodes[i + 1].slug);
    EXPECT_EQ(catalogue()[i].title, kCodes[i + 1].title);
  }
}

TEST(Catalogue, HasTheFirstMembersOfEveryRange) {
  const auto expect_range = [](int first, int last) {
    for (int code = first; code <= last; ++code)
      EXPECT_NE(find_code("LS" + std::to_string(code)), nullptr) << code;
  };
  expect_range(101, 110);
  expect_range(201, 212);
  expect_range(301, 307);
  expect_range(401, 407);
  expect_range(411, 422);
  expect_range(501, 506);
  expect_range(901, 904);
}

TEST(Catalogue, FindsByCodeInAnyCaseAndBySlug) {
  ASSERT_NE(find_code("ls301"), nullptr);
  EXPECT_EQ(find_code("absent-rank"), find_code("LS301"));
  EXPECT_EQ(find_code("LS999"), nullptr);
  EXPECT_EQ(find_code(""), nullptr);
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
