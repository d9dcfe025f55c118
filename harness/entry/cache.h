// The folders in which lockstep keeps what it need not find out twice.
#pragma once

#include <filesystem>
#include <string>

#include "harness/base/error.h"

namespace lockstep::entry {

/// `name` below the user's cache, made where it is not there. Errors: kEnvironment, there is none
/// or it cannot be written.
Result<std::filesystem::path> cache_folder(const std::string& name);

}  // namespace lockstep::entry
