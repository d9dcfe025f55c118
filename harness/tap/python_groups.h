// The members of a group that Python is about to create: they stand in a variable of the function
// that creates it, and nothing else has them yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "harness/tap/python_sites.h"

#pragma GCC visibility push(hidden)

namespace lockstep::tap {

/// Global ranks by group rank, of the group that the calling thread creates in init_process_group
/// (empty: all) or new_group (empty: not `size` of them). None: it is in neither.
std::optional<std::vector<std::int32_t>> ranks_being_grouped(const PythonSites& python,
                                                             std::size_t size);

/// The calls that PyTorch's coalescing manager set aside and did not make: the block of code for
/// which it did was left by an exception, and the manager goes on to do so with every call of its
/// kind on that group. To be called in destroy_process_group by the thread that is in it; asks the
/// interpreter, and only if that thread has the GIL anyway.
void for_each_set_aside(void (*take)(const char* op, std::uint32_t calls));

}  // namespace lockstep::tap

#pragma GCC visibility pop
