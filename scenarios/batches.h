// Data for the conversations: rank-distinct, drawn from seed, step and rank, the same on every
// machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// Numbers of a small generator of our own (splitmix64), so that data never depends on a library's
/// version.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits();
  /// Uniform in [-1, 1).
  double real();
  /// Uniform in [low, high].
  std::int64_t integer(std::int64_t low, std::int64_t high);

 private:
  std::uint64_t state_;
};

/// Mixes parts of a key (seed, step, rank, ...) into one seed.
std::uint64_t mix_seed(std::initializer_list<std::uint64_t> parts);

struct BatchShape {
  std::vector<std::int64_t> x{};  ///< Without the batch dimension.
  std::vector<std::int64_t> y{};
};

/// What the rows of one rank's batch are drawn from.
enum class Values : std::uint8_t { kReal, kSmallIntegers };

/// `rows` x shape values for x and y, in float64. Small integers lie in [-3, 3], times `scale`.
struct Batch {
  std::int64_t rows{};
  std::vector<double> x{}, y{};
};
Batch draw_batch(const BatchShape& shape, std::int64_t rows, Values values, double scale,
                 std::uint64_t seed);

/// Where a critic's inner gradient is taken, one point per row of x: between x and y, or around x
/// ("dragan"). The shares, one a row or ("dragan") one a value, are of the row's number and values
/// alone, so the same batch has the same points.
struct PenaltyPoints {
  std::vector<double> shares{}, points{};
};
PenaltyPoints penalty_points(const Batch& batch, const std::string& kind);

}  // namespace lockstep
