// The tap as a shared library, compiled for the LibTorch of the user's program as one piece, where
// nothing of ours but harness/tap, harness/python and the history writer is there. The shim
// (shim.c) loads it.
#include <climits>
#include <cstdlib>

#include "harness/tap/groups.cc"
#include "harness/tap/operation.cc"
#include "harness/tap/python_sites.cc"
#include "harness/tap/tap.cc"

namespace lockstep::tap {
namespace {

std::int32_t number_in_environment(const char* name, std::int32_t otherwise) {
  const char* const text = std::getenv(name);
  char* end = nullptr;
  const long value = text == nullptr ? -1 : std::strtol(text, &end, 10);
  const bool good = end != nullptr && end != text && *end == 0 && value >= 0 && value <= INT_MAX;
  return good ? static_cast<std::int32_t>(value) : otherwise;
}

__attribute__((constructor)) void enter() {
  start({.directory = std::getenv("LOCKSTEP_HISTORY"),
         .rank = number_in_environment("RANK", -1),
         .world_size = number_in_environment("WORLD_SIZE", 0),
         .at_first_group = true});
}

__attribute__((destructor)) void leave() { stop(); }

}  // namespace
}  // namespace lockstep::tap

// Called by the shim.
extern "C" __attribute__((visibility("default"))) std::size_t lockstep_tap_python_stack(
    char* to, std::size_t size) {
  return lockstep::tap::python_stack(to, size);
}
extern "C" __attribute__((visibility("default"))) void lockstep_tap_group_created(
    c10d::ProcessGroup* group) {
  if (group != nullptr)
    lockstep::tap::group_created(*group);
}
