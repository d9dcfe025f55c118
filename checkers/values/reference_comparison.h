// Values that ranks hold, against what they should be: one judge for all checks that have a
// reference.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkers/values/references.h"
#include "checkers/values/tolerance.h"
#include "harness/verdict/verdict.h"

namespace lockstep::checkers {

/// A value, its reference, and how far they are apart.
struct Compared {
  Distance far{};
  NumberRule rule{};
  Tensor value{}, reference{};
};

class ReferenceComparison {
 public:
  /// `measure`: the name of the number that is reported.
  ReferenceComparison(const Run& run, std::string measure)
      : run_(run), measure_{.name = std::move(measure)} {}

  /// None where that is not known, or where rounding alone may do it.
  std::optional<Compared> compare(const Subject& subject, Rank rank);
  /// By how much the known mistakes of these variants would have shown.
  void measure_power(const Subject& subject, std::string_view variants = "");
  /// As far as both can be read.
  std::optional<bool> same(const Observation& value, const Observation& reference);
  std::optional<Tensor> load(const Observation& observation);
  /// Of runs of the tested type, those of this rank's rows.
  const std::vector<Tensor>& permutations_of(const Subject& subject, Rank rank);

  void not_decided(Reason why);
  /// Why not; empty where all that was asked about was compared.
  [[nodiscard]] const std::string& undecided() const { return undecided_.text; }
  [[nodiscard]] std::uint64_t compared() const { return compared_; }

  /// Wrong on these, and right on a strict majority: they are likely at fault.
  void blame(const RankSet& wrong, std::size_t among, Finding& finding) const;
  /// The measure, and why it decides nothing.
  void conclude(Verdict& verdict);

 private:
  const Run& run_;
  Measure measure_;
  Reason undecided_{};
  std::uint64_t compared_{};
  double furthest_{};
  std::map<std::string, double> effects_{};  ///< By variant.
  const Subject* permuted_{};                ///< Of whom `permutations_` are,
  std::optional<Rank> permuted_for_{};       ///< and whose rows.
  std::vector<Tensor> permutations_{};
};

/// A reference was computed for it.
bool has_reference(const Subject& subject);

/// "fc1.weight: off by 0.5 on rank 1, tolerated 1e-10 (double)".
std::string in_words(const std::string& name, const Distance& far, NumberRule rule,
                     const RankSet& ranks);

}  // namespace lockstep::checkers
