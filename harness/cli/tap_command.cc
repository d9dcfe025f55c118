#include <fmt/format.h>

#include "harness/cli/commands.h"
#include "harness/entry/entry.h"

namespace lockstep::cli {

int run_tap_build_command(const TapBuild& build) {
  const Result<entry::Torch> torch =
      build.torch.empty() ? entry::torch_of_program(build.program) : entry::torch_in(build.torch);
  if (!torch)
    return report_error(torch.error());
  const entry::Say say = [](const std::string& text) {
    fmt::print(stderr, "lockstep: {}\n", text);
  };
  const Result<entry::Built> built = build.into.empty()
                                         ? entry::build_tap(*torch, say)
                                         : entry::build_ready_tap(*torch, build.into, say);
  if (!built)
    return report_error(built.error());
  fmt::print("tap for torch {}: {}{}\n", torch->version, built->tap,
             built->fresh ? "" : " (was there)");
  return 0;
}

}  // namespace lockstep::cli
