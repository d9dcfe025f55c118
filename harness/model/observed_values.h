// Observed values: which ranks hold the same value of one tensor, and in what order observations
// were made.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "harness/history/run.h"

namespace lockstep {

/// Position of a phase within its step: "before" (wrapping) < "initial" < "forward_entry/0" <
/// "after_forward/0" < "forward_entry/1" ... < "after_backward" < "after_step". Unknown phases come
/// last.
std::int32_t phase_order(std::string_view phase);

/// 1 of "forward_entry/1"; 0 if there is none.
std::int32_t phase_index(std::string_view phase);

/// "forward_entry/1" begins with "forward_entry", "forward_entry_unsynced/1" does not.
bool is_phase(std::string_view phase, std::string_view kind);

/// The name after "grad/", "buffer/", ...; the kind before it.
std::string_view kind_of(std::string_view name);
std::string_view tensor_name(std::string_view name);

/// One tensor at one point of the program, as each rank holds it.
struct Sighting {
  std::string name{}, phase{};
  std::int64_t step{};
  std::size_t occasion{};  ///< Among equal ones: a phase may come once per micro-batch.
  std::map<Rank, const Observation*> by_rank{};

  [[nodiscard]] bool complete(std::int32_t world_size) const {
    return by_rank.size() == static_cast<std::size_t>(world_size);
  }
};

/// Observations of ranks of these kinds ("param", "buffer", ...), in program order.
std::vector<Sighting> sightings(const Run& run, const std::vector<std::string_view>& kinds);

/// Bit for bit.
inline bool identical(const Observation& a, const Observation& b) {
  return a.digest == b.digest && a.dtype == b.dtype && a.shape == b.shape;
}

/// Of its file. Errors: kMalformedHistory, where it cannot be read.
Result<Tensor> values_of(const Run& run, const Observation& observation);

/// Largest |a - b|; none if a file cannot be read or shapes differ. Not finite if either is not.
std::optional<double> largest_difference(const Run& run, const Observation& a,
                                         const Observation& b);

}  // namespace lockstep
