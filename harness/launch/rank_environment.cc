#include "harness/launch/rank_environment.h"

#include <charconv>
#include <utility>

#include "harness/os/kernel_objects.h"

namespace lockstep::launch {
std::map<std::string, std::string> rank_environment(std::int32_t rank, std::int32_t world_size,
                                                    std::uint16_t port) {
  const std::string number = std::to_string(rank);
  const std::string size = std::to_string(world_size);
  return {{"RANK", number},
          {"LOCAL_RANK", number},
          {"WORLD_SIZE", size},
          {"LOCAL_WORLD_SIZE", size},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", std::to_string(port)}};
}

std::optional<std::int32_t> told_number(std::int32_t pid, std::string_view name) {
  const std::optional<std::string> text = os::environment_value(pid, name);
  std::int32_t number = 0;
  if (!text || std::from_chars(text->data(), text->data() + text->size(), number).ec != std::errc())
    return std::nullopt;
  return number;
}

Told told_of(std::int32_t pid) {
  Told told;
  if (const std::optional<os::ProcessStat> process = os::read_process(pid))
    told.parent = process->parent;
  if (const std::optional<os::ProcessStat> parent = os::read_process(told.parent))
    told.parent_name = parent->name;
  told.command = os::command_line(pid);
  told.world_size = told_number(pid, "WORLD_SIZE").value_or(0);
  told.attempt = told_number(pid, "TORCHELASTIC_RESTART_COUNT");
  const std::optional<std::string> host = os::environment_value(pid, "MASTER_ADDR");
  const std::optional<std::string> port = os::environment_value(pid, "MASTER_PORT");
  if (host && port)
    told.meets_at = *host + ":" + *port;
  constexpr std::pair<const char*, const char*> kTasks[] = {
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
      {"PMI_RANK", "PMI_SIZE"},
      {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}};
  for (const auto& [task, tasks] : kTasks) {
    told.task = told_number(pid, task);
    told.tasks = told_number(pid, tasks).value_or(0);
    if (told.task && told.tasks > 0)
      break;
  }
  return told;
}

std::optional<Rank> told_rank(const os::ProcessStat& process) {
  const std::optional<std::int32_t> rank = told_number(process.id.pid, "RANK");
  if (!rank || *rank < 0 || told_number(process.parent, "RANK") == rank)
    return std::nullopt;
  return Rank{*rank};
}

}  // namespace lockstep::launch
