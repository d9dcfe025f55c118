// Every form of every sample report, byte by byte.
#include <gtest/gtest.h>

#include "harness/report/human.h"
#include "harness/report/json.h"
#include "harness/report/junit.h"
#include "tests/golden/golden.h"
#include "tests/unit/report/samples.h"

namespace lockstep {
namespace {

using testing::all_samples;
using testing::expect_golden;
using testing::Sample;

class ReportGolden : public ::testing::TestWithParam<Sample> {};

TEST_P(ReportGolden, Human) {
  for (const std::size_t width : {80U, 100U}) {
    for (const bool color : {false, true}) {
      const HumanOptions options{.width = width, .color = color, .directory = GetParam().directory};
      expect_golden("report/" + GetParam().name + "." + std::to_string(width) +
                        (color ? ".color" : "") + ".txt",
                    render_human(GetParam().report, options));
    }
  }
}

TEST_P(ReportGolden, Concise) {
  expect_golden("report/" + GetParam().name + ".concise.txt",
                render_concise(GetParam().report, {}));
}

TEST_P(ReportGolden, Json) {
  expect_golden("report/" + GetParam().name + ".json", render_json(GetParam().report));
}

TEST_P(ReportGolden, JUnit) {
  expect_golden("report/" + GetParam().name + ".xml", render_junit(GetParam().report));
}

INSTANTIATE_TEST_SUITE_P(Samples, ReportGolden, ::testing::ValuesIn(all_samples()),
                         [](const auto& test) { return test.param.name; });

TEST(ReportGolden, Ascii) {
  expect_golden("report/hostile.ascii.txt", render_human(testing::hostile(), {.unicode = false}));
  expect_golden("report/healthy_suite.ascii.txt",
                render_human(testing::healthy_suite(), {.unicode = false}));
}

}  // namespace
}  // namespace lockstep
