#include "harness/model/matching.h"

#include <gtest/gtest.h>

#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

Collective bytes(Call call) { return call.with(history::DType::kUInt8).record; }

TEST(Matching, BytesAreWhatTheyMean) {
  EXPECT_TRUE(agree(bytes(broadcast("dp", 16)), broadcast("dp", 4).record));
  EXPECT_TRUE(agree(all_gather("dp", 4, 8).record, bytes(all_gather("dp", 16, 32))));
  EXPECT_EQ(differences(bytes(broadcast("dp", 20)), broadcast("dp", 4).record),
            (std::vector<Code>{Code::kDifferentSize, Code::kDifferentDtype}));
  EXPECT_EQ(differences(bytes(broadcast("dp", 4)), broadcast("dp", 4).record),
            std::vector<Code>{Code::kDifferentDtype});
}

TEST(Matching, NobodyAddsBytesToNumbers) {
  EXPECT_EQ(differences(bytes(all_reduce("dp", 16)), all_reduce("dp", 4).record),
            (std::vector<Code>{Code::kDifferentSize, Code::kDifferentDtype}));
}

TEST(Matching, OtherTypesOfOneSizeDiffer) {
  EXPECT_EQ(differences(broadcast("dp", 4).with(history::DType::kInt32).record,
                        broadcast("dp", 4).record),
            std::vector<Code>{Code::kDifferentDtype});
}

}  // namespace
}  // namespace lockstep::testing
