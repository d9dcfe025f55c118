// What the doctor found, as text for people and as the document that machines read.
#pragma once

#include <string>
#include <vector>

#include "harness/doctor/examine.h"
#include "harness/report/human.h"

namespace lockstep::doctor {

/// A line each; what is not well is followed by what is needed and what to do.
std::string render_text(const std::vector<Item>& items, const HumanOptions& options);

/// `lockstep-doctor/1`; ends with a line feed.
std::string render_json(const std::vector<Item>& items);

}  // namespace lockstep::doctor
