#include "harness/entry/cache.h"

#include <fmt/format.h>

#include <cstdlib>

namespace lockstep::entry {

namespace fs = std::filesystem;

Result<fs::path> cache_folder(const std::string& name) {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  if ((cache == nullptr || *cache == 0) && (home == nullptr || *home == 0))
    return Error{Error::Kind::kEnvironment, "there is no folder to keep the tap in",
                 "set XDG_CACHE_HOME"};
  const fs::path folder =
      (cache != nullptr && *cache != 0 ? fs::path(cache) : fs::path(home) / ".cache") / "lockstep" /
      name;
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed)
    return Error{Error::Kind::kEnvironment,
                 fmt::format("cannot write {}: {}", folder.string(), failed.message()),
                 "set XDG_CACHE_HOME to a folder that can be written"};
  return folder;
}

}  // namespace lockstep::entry
