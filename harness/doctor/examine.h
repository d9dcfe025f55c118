// What of the facts of a host is well, and what is not: a line each with have, need and what to do.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/doctor/facts.h"

namespace lockstep::doctor {

enum class Level : std::uint8_t {
  kWell,
  kUnseen,   ///< It could not be tried here.
  kWarning,  ///< It may trip some jobs.
  kStops,    ///< No job gets past it.
};

std::string_view name_of(Level level);

struct Item {
  std::string name{};
  Level level{};
  std::string have{}, need{}, to_do{};
};

std::vector<Item> examine(const Facts& facts);

/// Something would stop a job.
bool stops_a_job(const std::vector<Item>& items);

}  // namespace lockstep::doctor
