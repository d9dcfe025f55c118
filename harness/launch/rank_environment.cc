#include "harness/launch/rank_environment.h"

#include <charconv>

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

std::optional<Rank> told_rank(const os::ProcessStat& process) {
  const std::optional<std::int32_t> rank = told_number(process.id.pid, "RANK");
  if (!rank || *rank < 0 || told_number(process.parent, "RANK") == rank)
    return std::nullopt;
  return Rank{*rank};
}

}  // namespace lockstep::launch
