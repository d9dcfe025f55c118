// The rules by which numbers are compared: exact, double, cancelling, precision.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/history/run.h"

namespace lockstep::checkers {

enum class NumberRule : std::uint8_t { kExact, kDouble, kCancelling, kPrecision };

/// "exact" if the plan says so, and for integers; else by the type that was observed: F64 is
/// "double", or "cancelling" if the plan says so, smaller ones "precision".
NumberRule number_rule(const Plan& plan, const std::string& dtype);
std::string name_of(NumberRule rule);

/// How far a tensor is from its reference, in units of what is tolerated: above 1 it is wrong.
struct Distance {
  double ratio{};      ///< Infinite for another shape, and for NaN on one side only.
  double error{};      ///< The number that came closest to (or went furthest over) its tolerance,
  double tolerance{};  ///< and that tolerance.
};

/// exact:     every element equal.
/// cancelling: the same with 1e-7, where a mean 1000 times the deviation has cost digits.
/// double:    |x - ref| <= 1e-10 (max|ref| of its row + 1). A row is what the first dimension
/// counts; a vector is one. precision: ||x - ref|| <= 6 max(||x1 - ref||, u ||ref||), and the
/// largest element within 32 times the same.
Distance distance(NumberRule rule, const Tensor& x, const Tensor& reference,
                  const std::vector<Tensor>& x1);

}  // namespace lockstep::checkers
