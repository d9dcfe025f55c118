#include "harness/entry/entry.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

namespace lockstep::entry {
namespace {

Entry unseen(const Error& error) {
  return Entry{{},
               fmt::format("cannot see inside: {}{}{}", error.what, error.help.empty() ? "" : "; ",
                           error.help)};
}

}  // namespace

Entry prepare(const std::vector<std::string>& command, const std::string& history, const Say& say) {
  const Result<Torch> torch = torch_of_command(command);
  if (!torch)
    return unseen(torch.error());
  const Result<Built> built = build_tap(*torch, say);
  if (!built)
    return unseen(built.error());
  // The loader splits at these, and there is no way to quote them.
  if (built->shim.find_first_of(" :") != std::string::npos)
    return unseen(
        {Error::Kind::kEnvironment,
         fmt::format("{} cannot be preloaded, its path has a space or a colon", built->shim),
         "set XDG_CACHE_HOME to another folder"});
  const char* const theirs = std::getenv("LD_PRELOAD");
  Entry entry;
  entry.environment["LD_PRELOAD"] =
      theirs == nullptr || *theirs == 0 ? built->shim : fmt::format("{}:{}", theirs, built->shim);
  entry.environment["LOCKSTEP_TAP"] = built->tap;
  entry.environment["LOCKSTEP_TORCH"] = torch->library();
  entry.environment["LOCKSTEP_HISTORY"] = history;
  entry.environment["LOCKSTEP_SUPERVISOR"] = std::to_string(::getpid());
  return entry;
}

}  // namespace lockstep::entry
