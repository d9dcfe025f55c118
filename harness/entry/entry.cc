#include "harness/entry/entry.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>

#include "harness/entry/program.h"

namespace lockstep::entry {
namespace {

std::string text_of(const Error& error) {
  return fmt::format("cannot see inside: {}{}{}", error.what, error.help.empty() ? "" : "; ",
                     error.help);
}

/// What is preloaded into such a program may keep it from starting.
bool can_be_entered(const std::string& word) {
  const std::optional<Program> program = program_of(word);
  return !program || program->obstacle.empty();
}

}  // namespace

Entry prepare(const std::vector<std::string>& command, const std::string& history, const Say& say) {
  const Result<Torch> torch = torch_of_command(command);
  Result<Built> built = torch ? build_tap(*torch, say) : torch.error();
  Entry entry;
  if (!built) {
    const auto other = can_be_entered(command.front()) ? built_before() : std::nullopt;
    if (!other)
      return {{}, text_of(built.error())};
    entry.unseen = fmt::format(
        "{}; only what loads a torch that a tap was built for is seen inside", built.error().what);
    built = *other;
  }
  // The loader splits at these, and there is no way to quote them.
  if (built->shim.find_first_of(" :") != std::string::npos)
    return {{},
            text_of({Error::Kind::kEnvironment,
                     fmt::format("{} cannot be preloaded, its path has a space or a colon",
                                 built->shim),
                     "set XDG_CACHE_HOME to another folder"})};
  const char* const theirs = std::getenv("LD_PRELOAD");
  entry.environment["LD_PRELOAD"] =
      theirs == nullptr || *theirs == 0 ? built->shim : fmt::format("{}:{}", theirs, built->shim);
  entry.environment["LOCKSTEP_TAPS"] = built->taps;
  if (!built->ready.empty())
    entry.environment["LOCKSTEP_READY_TAPS"] = built->ready;
  entry.environment["LOCKSTEP_HISTORY"] = history;
  entry.environment["LOCKSTEP_SUPERVISOR"] = std::to_string(::getpid());
  return entry;
}

}  // namespace lockstep::entry
