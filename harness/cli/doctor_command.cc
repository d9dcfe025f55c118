// `lockstep doctor`: what of this host would trip a job, before one starts.
#include <cstdio>

#include "harness/cli/commands.h"
#include "harness/doctor/examine.h"
#include "harness/doctor/text.h"
#include "harness/verdict/exit_codes.h"

namespace lockstep::cli {

int run_doctor_command(bool json, const Output& output) {
  const std::vector<doctor::Item> items = doctor::examine(doctor::facts_of_this_host());
  const std::string text = json ? doctor::render_json(items)
                                : doctor::render_text(items, human_options_here(output, ""));
  std::fwrite(text.data(), 1, text.size(), stdout);
  return status_of(doctor::stops_a_job(items) ? ExitCode::kFinding : ExitCode::kNothingFound);
}

}  // namespace lockstep::cli
