// A run and what follows from it, worked out once for all who ask.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "harness/history/run.h"
#include "harness/model/coverage.h"
#include "harness/model/failure.h"
#include "harness/model/group_view.h"
#include "harness/verdict/verdict.h"

namespace lockstep {

/// Of one world. The run must outlive it. Not for two threads at once.
class Job {
 public:
  Job(const Run& run) : run_(run) {}  // NOLINT(google-explicit-constructor): a run is one.

  [[nodiscard]] const Run& run() const { return run_; }
  /// When something was first ended by us, or from outside: what follows came of it; or kNeverNs.
  [[nodiscard]] std::uint64_t first_act_ns() const;
  /// What happened before that.
  [[nodiscard]] const std::vector<GroupView>& groups() const;
  /// Of those, how ranks failed.
  [[nodiscard]] const std::vector<Failure>& failures() const;
  /// What is not on record.
  [[nodiscard]] const std::vector<Gap>& gaps() const;

 private:
  const Run& run_;
  mutable std::optional<std::uint64_t> first_act_ns_{};
  mutable std::optional<std::vector<GroupView>> groups_{};
  mutable std::optional<std::vector<Failure>> failures_{};
  mutable std::optional<std::vector<Gap>> gaps_{};
};

/// One rule (and the codes of that rule). Reads nothing but the job, decides explicitly.
class Checker {
 public:
  virtual ~Checker() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual Verdict check(const Job& job) const = 0;
};

}  // namespace lockstep
