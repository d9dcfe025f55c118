// Goal: nothing that the program under test says can move the cursor or break a line. Method:
// single strings.
#include "harness/report/text.h"

#include <gtest/gtest.h>

#include <limits>

namespace lockstep::report {
namespace {

using Lines = std::vector<std::string>;

TEST(Clean, KeepsWhatIsValid) {
  const std::string text = "a\nb caf\xc3\xa9 \xe6\xbc\xa2 \xf0\x9f\x98\x80";
  EXPECT_EQ(clean(text), text);
}

TEST(Clean, ReplacesWhatIsNoUtf8) {
  EXPECT_EQ(clean("\xff"), "\xEF\xBF\xBD");
  EXPECT_EQ(clean("a\xc3"), "a\xEF\xBF\xBD");                                // cut short
  EXPECT_EQ(clean("\xc0\xaf"), "\xEF\xBF\xBD\xEF\xBF\xBD");                  // overlong
  EXPECT_EQ(clean("\xe0\x80\xaf"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");  // overlong
  EXPECT_EQ(clean("\xed\xa0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");  // a surrogate
  EXPECT_EQ(clean("\xf4\x90\x80\x80").size(), 12U);                          // beyond U+10FFFF
  EXPECT_EQ(clean("\xef\xbf\xbf"), "\xEF\xBF\xBD");                          // U+FFFF: not in XML
}

TEST(Clean, EscapesControlCharacters) {
  EXPECT_EQ(clean("\x1b[2J\r\x07\x7f"), "\\x1b[2J\\x0d\\x07\\x7f");
  EXPECT_EQ(clean("\xc2\x9b"
                  "2J"),
            "\\x9b2J");  // the one-character CSI
  EXPECT_EQ(clean(std::string_view("\0x", 2)), "\\x00x");
  EXPECT_EQ(clean("a\tb"), "a b");
}

TEST(Printable, FallsBackToAscii) {
  EXPECT_EQ(printable("1 \xe2\x89\xa4 2 \xc3\x97 3\xe2\x80\xa6 \xc3\xa9", false),
            "1 <= 2 x 3... ?");
  EXPECT_EQ(printable("\xff", false), "?");
  EXPECT_EQ(printable("\xc3\xa9", true), "\xc3\xa9");
}

TEST(Wrap, BreaksAtSpaces) {
  EXPECT_EQ(wrap("one two three", 7), (Lines{"one two", "three"}));
  EXPECT_EQ(wrap("one two three", 8, 2), (Lines{"one two", "  three"}));
  EXPECT_EQ(wrap("one\ntwo", 80), (Lines{"one", "two"}));
  EXPECT_EQ(wrap("", 80), (Lines{""}));
}

TEST(Wrap, LeavesALineThatFitsAlone) { EXPECT_EQ(wrap("a    b   c", 10), (Lines{"a    b   c"})); }

TEST(Wrap, KeepsTheIndentOfTheLine) {
  EXPECT_EQ(wrap("  aa bb cc", 7, 1), (Lines{"  aa bb", "   cc"}));
}

TEST(Wrap, DoesNotBreakAWord) {
  EXPECT_EQ(wrap("abcdefgh", 4), (Lines{"abcdefgh"}));
  EXPECT_EQ(wrap("abcdefgh ij", 4), (Lines{"abcdefgh", "ij"}));
  EXPECT_EQ(wrap("abcdefgh ", 4), (Lines{"abcdefgh "}));
  EXPECT_EQ(wrap("a b", 0), (Lines{"a", "b"}));
}

TEST(Wrap, CountsCodePointsNotBytes) {
  EXPECT_EQ(wrap("\xc3\xa9\xc3\xa9 \xc3\xa9\xc3\xa9", 5),
            (Lines{"\xc3\xa9\xc3\xa9 \xc3\xa9\xc3\xa9"}));
}

TEST(Truncated, ShowsThatSomethingIsCut) {
  EXPECT_EQ(truncated("abcdef", 6, true), "abcdef");
  EXPECT_EQ(truncated("abcdefg", 6, true), "abcde\xe2\x80\xa6");
  EXPECT_EQ(truncated("abcdefg", 6, false), "abc...");
  EXPECT_EQ(truncated("\xc3\xa9\xc3\xa9\xc3\xa9", 2, true), "\xc3\xa9\xe2\x80\xa6");
}

TEST(Describe, NamesRanks) {
  EXPECT_EQ(describe({}), "none");
  EXPECT_EQ(describe({Rank{0}}), "rank 0");
  EXPECT_EQ(describe({Rank{0}, Rank{1}, Rank{2}, Rank{4}}, 8), "ranks 0-2,4");
  EXPECT_EQ(describe(RankSet::all(8), 8), "all 8 ranks");
  EXPECT_EQ(describe(RankSet::all(8)), "ranks 0-7");
}

TEST(Describe, CapsTheRanges) {
  RankSet even;
  for (std::int32_t r = 0; r < 1024; r += 2)
    even.insert(Rank{r});
  EXPECT_EQ(describe(even, 1024), "ranks 0,2,4,6,8,10,12,14,16,18 and 502 more");
}

TEST(CountOf, KnowsOneFromMany) {
  EXPECT_EQ(count_of(1, "rank"), "1 rank");
  EXPECT_EQ(count_of(0, "rank"), "0 ranks");
  EXPECT_EQ(count_of(2, "process"), "2 processes");
}

TEST(Number, ShowsNoSignOfNan) {
  EXPECT_EQ(number(-std::numeric_limits<double>::quiet_NaN()), "nan");
  EXPECT_EQ(number(-std::numeric_limits<double>::infinity()), "-inf");
  EXPECT_EQ(number(2.220446049250313e-16), "2.22e-16");
}

TEST(ShellWord, QuotesOnlyWhatMustBe) {
  EXPECT_EQ(shell_word(".lockstep/7f3a/broadcast=on"), ".lockstep/7f3a/broadcast=on");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word(""), "''");
}

}  // namespace
}  // namespace lockstep::report
