// The tap's reading of Python frames, as a library that any interpreter loads with ctypes: in one
// piece, as the tap itself is compiled.
#include <pthread.h>

#include <string>

#include "harness/python/frames.h"
#include "harness/tap/python_sites.cc"

namespace {

lockstep::tap::PythonSites sites;
lockstep::history::Writer* writer = nullptr;
thread_local int backward = -1;  // As autograd numbers them.

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

/// With the GIL held (ctypes.PyDLL). 1: the interpreter is known, and read rightly.
EXPORTED int probe_begin(const char* directory) {
  lockstep::history::WriterOptions options;
  options.directory = directory;
  options.capabilities = lockstep::history::kSeesPythonSites;
  writer = lockstep::history::Writer::open(options);
  return writer != nullptr && sites.begin() ? 1 : 0;
}

/// Without the GIL (ctypes.CDLL), as the tap is called. Records one operation from this site.
EXPORTED unsigned probe_site() {
  static const lockstep::history::GroupHandle group =
      writer->define_group({"probe", 1, 0, nullptr, 0, 0, true});
  lockstep::history::Issue call;
  call.op = lockstep::history::Op::kBarrier;
  call.site = sites.site(*writer, backward);
  writer->returned_completed(writer->issue(group, call));
  return call.site;
}

/// The same from a thread that Python knows nothing of, with this name, which works for a backward
/// of this number; it calls `then` if there is one, which takes the GIL and may call probe_site().
EXPORTED unsigned probe_site_of_thread(const char* name, int works_for, unsigned (*then)()) {
  struct Thread {
    const char* name;
    int works_for;
    unsigned (*then)();
    unsigned site;
  } thread{name, works_for, then == nullptr ? probe_site : then, 0};
  pthread_t id;
  pthread_create(
      &id, nullptr,
      [](void* self) -> void* {
        auto* const its = static_cast<Thread*>(self);
        pthread_setname_np(pthread_self(), its->name);
        backward = its->works_for;
        its->site = its->then();
        return nullptr;
      },
      &thread);
  pthread_join(id, nullptr);
  return thread.site;
}

/// Nanoseconds of one call, the least of many, from a stack that was seen before.
EXPORTED double probe_cost() {
  std::uint64_t least = ~std::uint64_t{0};
  for (int batch = 0; batch < 300; ++batch) {
    constexpr int kCalls = 100;
    const std::uint64_t begin = lockstep::history::clock_ns(CLOCK_MONOTONIC);
    for (int call = 0; call < kCalls; ++call)
      sites.site(*writer, backward);
    const std::uint64_t took = lockstep::history::clock_ns(CLOCK_MONOTONIC) - begin;
    least = took < least ? took : least;
  }
  return static_cast<double>(least) / 100;
}
