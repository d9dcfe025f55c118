// LS509: are gradients reduced in the buckets that were asked for? Every parameter is in one, with
// others of its type, and a bucket is closed by the parameter with which it holds its limit: of the
// first one `first_bucket_bytes`, of all others `bucket_cap_bytes`. The last of a type may hold
// less.
#pragma once

#include "harness/model/job.h"

namespace lockstep::checkers {

class BucketLayout : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "bucket-layout"; }
  [[nodiscard]] Verdict check(const Job& job) const override;
};

}  // namespace lockstep::checkers
