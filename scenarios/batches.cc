#include "scenarios/batches.h"

#include <cmath>

namespace lockstep {

std::uint64_t Draw::bits() {
  state_ += 0x9e3779b97f4a7c15U;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31U);
}

double Draw::real() {
  return static_cast<double>(static_cast<std::int64_t>(bits() >> 10U) - (std::int64_t{1} << 53)) /
         9007199254740992.0;
}

std::int64_t Draw::integer(std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(high - low + 1));
}

std::uint64_t mix_seed(std::initializer_list<std::uint64_t> parts) {
  std::uint64_t seed = 0x6c6f636b73746570U;
  for (const std::uint64_t part : parts)
    seed = Draw(seed ^ (part + 0x9e3779b97f4a7c15U)).bits();
  return seed;
}

namespace {

std::int64_t numel(const std::vector<std::int64_t>& shape) {
  std::int64_t n = 1;
  for (const std::int64_t extent : shape)
    n *= extent;
  return n;
}

std::vector<double> draw_values(std::int64_t count, Values values, double scale, Draw& draw) {
  std::vector<double> drawn(static_cast<std::size_t>(count));
  for (double& value : drawn)
    value =
        scale * (values == Values::kReal ? draw.real() : static_cast<double>(draw.integer(-3, 3)));
  return drawn;
}

}  // namespace

Batch draw_batch(const BatchShape& shape, std::int64_t rows, Values values, double scale,
                 std::uint64_t seed) {
  Draw draw(seed);
  Batch batch;
  batch.rows = rows;
  batch.x = draw_values(rows * numel(shape.x), values, scale, draw);
  batch.y = draw_values(rows * numel(shape.y), values, scale, draw);
  return batch;
}

PenaltyPoints penalty_points(const Batch& batch, const std::string& kind) {
  PenaltyPoints result{.points = batch.x};
  std::vector<double>& points = result.points;
  if (batch.rows == 0)
    return result;
  Draw draw(mix_seed({static_cast<std::uint64_t>(batch.rows), 0x9E11}));
  const auto count = static_cast<double>(points.size());
  double mean = 0;
  double square = 0;
  for (const double value : batch.x)
    mean += value / count;
  for (const double value : batch.x)
    square += (value - mean) * (value - mean) / (count - 1);
  const std::size_t width = points.size() / static_cast<std::size_t>(batch.rows);
  double share = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const bool begins_row = i % width == 0;
    if (kind == "dragan" || begins_row) {
      share = (draw.real() + 1) / 2;
      result.shares.push_back(share);
    }
    points[i] = kind == "dragan" ? batch.x[i] + 0.5 * std::sqrt(square) * share
                                 : share * batch.x[i] + (1 - share) * batch.y[i];
  }
  return result;
}

}  // namespace lockstep
