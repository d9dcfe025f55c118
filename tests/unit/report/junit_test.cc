// How verdicts map to JUnit, and that hostile strings leave it well-formed.
#include "harness/report/junit.h"

#include <gtest/gtest.h>

#include "tests/unit/report/samples.h"

namespace lockstep {
namespace {

std::size_t count_in(const std::string& text, std::string_view what) {
  std::size_t count = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
    ++count;
  return count;
}

TEST(JUnit, UndecidedIsAnErrorAndNeverSkipped) {
  const std::string xml = render_junit(testing::failing_suite());
  EXPECT_EQ(count_in(xml, "<failure "), 2U);
  EXPECT_EQ(count_in(xml, "<error type=\"undecided\""), 2U);
  EXPECT_EQ(count_in(xml, "<skipped "), 1U);
  EXPECT_NE(
      xml.find(
          "<testsuites name=\"lockstep\" tests=\"8\" failures=\"2\" errors=\"2\" skipped=\"1\""),
      std::string::npos);
}

TEST(JUnit, AVerdictThatNoCaseExplainsIsATestCaseOfItsOwn) {
  const std::string xml = render_junit(testing::interrupted());
  EXPECT_NE(
      xml.find("<error type=\"undecided\" message=\"interrupted by SIGINT after 1 of 40 cases\">"),
      std::string::npos);
  EXPECT_EQ(count_in(render_junit(testing::killed()), "<failure type=\"LS101\""), 1U);
  EXPECT_EQ(count_in(render_junit({}), "<error "), 1U);
}

TEST(JUnit, AFailedCheckShowsTheFindings) {
  const std::string xml = render_junit(testing::mismatch());
  EXPECT_EQ(count_in(xml, "<testcase "), 1U);
  EXPECT_NE(xml.find("error[LS201]"), std::string::npos);
}

TEST(JUnit, HostileStringsAreHarmless) {
  const std::string xml = render_junit(testing::hostile());
  EXPECT_EQ(xml.find("]]>"), std::string::npos);
  EXPECT_EQ(xml.find("<b>"), std::string::npos);
  for (const char c : xml)
    ASSERT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20);
}

}  // namespace
}  // namespace lockstep
