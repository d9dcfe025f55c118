// The part of the examination that is about ports, names and interfaces.
#pragma once

#include <vector>

#include "harness/doctor/examine.h"

namespace lockstep::doctor {

std::vector<Item> examine_network(const Facts& facts);
Item examine_round_trip(const Facts& facts, const RoundTrip& trip);

}  // namespace lockstep::doctor
