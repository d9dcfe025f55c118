// run.json and symbols.json. Internal to run_directory.
#pragma once

#include <string>

#include "harness/base/error.h"
#include "harness/history/run.h"

namespace lockstep::history {

std::string plan_to_json(const Plan& plan, std::uint64_t monotonic_ns, std::uint64_t wall_ns);
Result<Plan> plan_from_json(const std::string& text, const std::string& path);

std::string symbols_to_json(const std::vector<Frame>& frames);
/// What is not understood is left out.
std::vector<Frame> symbols_from_json(const std::string& text);

/// Writes under a temporary name and renames.
Result<void> write_file(const std::string& path, const std::string& text);

}  // namespace lockstep::history
