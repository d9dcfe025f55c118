// The process groups of torch.distributed that a Python process has, read as raw memory like its
// frames (frames.h): their objects, names and members, from the variables of its module
// distributed_c10d.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "harness/python/variables.h"

namespace lockstep::python {

constexpr std::uint16_t kModuleVariables = 16;  // Of a module object: its dictionary.
constexpr std::size_t kTextMax = 128;           // Of a text and what stands before it.

/// What a dictionary whose keys are texts has at `name` (ASCII); 0: nothing, or not to be read.
template <class Memory>
std::uint64_t value_at(const Layout& layout, const Memory& memory, std::uint64_t dictionary,
                       std::uint64_t dict_type, const char* name) {
  constexpr std::uint32_t kEntriesMax = 16384;
  const std::size_t length = std::strlen(name);
  const std::size_t bytes = layout.text_ascii + length;
  std::uint64_t found = 0;
  if (bytes > kTextMax)
    return 0;
  for_each_entry(
      memory, dictionary, dict_type, kEntriesMax, [&](std::uint64_t key, std::uint64_t value) {
        std::uint64_t text = 0, its_length = 0;
        char object[kTextMax];
        if (found != 0 || !load(memory, key, text) || !memory.read(text, object, bytes))
          return;
        std::memcpy(&its_length, object + kTextLength, sizeof its_length);
        if (its_length == length && std::memcmp(object + layout.text_ascii, name, length) == 0)
          found = value;
      });
  return found;
}

/// The variables of a module that `dictionary` has at `name`; 0: none.
template <class Memory>
std::uint64_t module_at(const Layout& layout, const Memory& memory, std::uint64_t dictionary,
                        std::uint64_t dict_type, const char* name) {
  std::uint64_t variables = 0;
  const std::uint64_t module = value_at(layout, memory, dictionary, dict_type, name);
  return module != 0 && load(memory, module + kModuleVariables, variables) ? variables : 0;
}

/// Those of torch.distributed.distributed_c10d, from the variables of a module that has imported
/// torch or, by its usual name, torch.distributed; 0: none.
template <class Memory>
std::uint64_t c10d_module(const Layout& layout, const Memory& memory, std::uint64_t variables,
                          std::uint64_t dict_type) {
  std::uint64_t distributed = module_at(layout, memory, variables, dict_type, "dist");
  if (distributed == 0) {
    const std::uint64_t torch = module_at(layout, memory, variables, dict_type, "torch");
    distributed = torch == 0 ? 0 : module_at(layout, memory, torch, dict_type, "distributed");
  }
  return distributed == 0 ? 0
                          : module_at(layout, memory, distributed, dict_type, "distributed_c10d");
}

/// Calls `take(object, address of its name, dictionary from global rank to rank in it)` for each
/// group, whose dictionary is 0 where the group has none. False: these are not the variables of
/// that module.
template <class Memory, class Take>
bool for_each_group(const Layout& layout, const Memory& memory, std::uint64_t variables,
                    std::uint64_t dict_type, Take take) {
  constexpr std::uint32_t kGroupsMax = 4096;
  const std::uint64_t names = value_at(layout, memory, variables, dict_type, "_pg_names");
  const std::uint64_t members = value_at(layout, memory, variables, dict_type, "_pg_group_ranks");
  if (names == 0 || members == 0)
    return false;
  for_each_entry(memory, names, dict_type, kGroupsMax, [&](std::uint64_t key, std::uint64_t) {
    std::uint64_t group = 0, ranks = 0;
    if (!load(memory, key, group))
      return;
    for_each_entry(memory, members, dict_type, kGroupsMax,
                   [&](std::uint64_t other, std::uint64_t value) {
                     std::uint64_t object = 0;
                     if (load(memory, other, object) && object == group)
                       ranks = value;
                   });
    take(group, key + 8, ranks);
  });
  return true;
}

}  // namespace lockstep::python
