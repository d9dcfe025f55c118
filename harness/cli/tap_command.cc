#include <fmt/format.h>

#include "harness/cli/commands.h"
#include "harness/entry/entry.h"

namespace lockstep::cli {

int run_tap_build_command(const std::string& program) {
  const Result<entry::Torch> torch = entry::torch_of_program(program);
  if (!torch)
    return report_error(torch.error());
  const Result<entry::Built> built = entry::build_tap(
      *torch, [](const std::string& text) { fmt::print(stderr, "lockstep: {}\n", text); });
  if (!built)
    return report_error(built.error());
  fmt::print("tap for torch {}: {}{}\n", torch->version, built->tap,
             built->fresh ? "" : " (was there)");
  return 0;
}

}  // namespace lockstep::cli
