// The tap as a shared library, compiled for the LibTorch of the user's program as one piece, where
// nothing of ours but harness/tap, harness/python and the history writer is there. The shim
// (shim.c) loads it.
#include <cxxabi.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "harness/tap/backend_calls.cc"
#include "harness/tap/begins.cc"
#include "harness/tap/device.cc"
#include "harness/tap/groups.cc"
#include "harness/tap/operation.cc"
#include "harness/tap/passing.cc"
#include "harness/tap/python_groups.cc"
#include "harness/tap/python_sites.cc"
#include "harness/tap/store_keys.cc"
#include "harness/tap/tap.cc"
#include "harness/tap/watch.cc"
#include "harness/tap/watch_data.cc"
#include "harness/tap/watch_misuse.cc"
#include "harness/tap/watch_replicas.cc"
#include "harness/tap/watched_tensors.cc"

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
         .at_first_group = true,
         .watch = std::getenv("LOCKSTEP_WATCH")});
}

__attribute__((destructor)) void leave() { stop(); }

// As std::terminate prints it.
std::size_t print_exception(char* to, std::size_t size, const char* what) {
  int status = 0;
  const std::type_info* const type = abi::__cxa_current_exception_type();
  const std::unique_ptr<char, void (*)(void*)> name(
      type == nullptr ? nullptr : abi::__cxa_demangle(type->name(), nullptr, nullptr, &status),
      std::free);
  const int length =
      std::snprintf(to, size, "terminate called after throwing an instance of '%s'\n%s%s\n",
                    name == nullptr ? "unknown" : name.get(),
                    what == nullptr ? "" : "  what():  ", what == nullptr ? "" : what);
  return length < 0 ? 0 : std::min(static_cast<std::size_t>(length), size - 1);
}

}  // namespace
}  // namespace lockstep::tap

// Called by the shim.
extern "C" __attribute__((visibility("default"))) std::size_t lockstep_tap_python_stack(
    char* to, std::size_t size) {
  return lockstep::tap::python_stack(to, size);
}
extern "C" __attribute__((visibility("default"))) void lockstep_tap_group_begun(c10d::Store* store,
                                                                                int rank,
                                                                                int size) {
  if (store != nullptr)
    lockstep::tap::group_begun(*store, rank, size);
}
extern "C" __attribute__((visibility("default"))) void lockstep_tap_world_left() {
  lockstep::tap::world_left();
}
extern "C" __attribute__((visibility("default"))) void lockstep_tap_group_created(
    c10d::ProcessGroup* group) {
  if (group != nullptr)
    lockstep::tap::group_created(*group);
}
extern "C" __attribute__((visibility("default"))) void lockstep_tap_backend_created(
    c10d::Backend* backend, c10d::Store* store) {
  if (backend != nullptr && store != nullptr)
    lockstep::tap::backend_created(*backend, *store);
}
extern "C" __attribute__((visibility("default"))) void lockstep_tap_thread_begun(
    const void* caller) {
  lockstep::tap::see_thread(caller);
}
extern "C" __attribute__((visibility("default"))) void lockstep_tap_leave() {
  lockstep::tap::stop();
}
/// The exception that ends the process: what std::terminate prints does not pass the shim.
extern "C" __attribute__((visibility("default"))) std::size_t lockstep_tap_exception(
    char* to, std::size_t size) {
  if (std::current_exception() == nullptr)
    return 0;
  try {
    throw;
  } catch (const std::exception& exception) {
    return lockstep::tap::print_exception(to, size, exception.what());
  } catch (...) {
    return lockstep::tap::print_exception(to, size, nullptr);
  }
}
