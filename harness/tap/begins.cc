#include "harness/tap/begins.h"

#include <dlfcn.h>

#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "harness/tap/passing.h"

namespace lockstep::tap {
namespace {

using history::BeginCount;
using history::Begins;

std::uint64_t text_type, number_type;  // The interpreter's.
bool is_seen;                          // What begins is told.
bool events_tell_threads;              // CPython before 3.12 has no event for them.

/// As a link of /proc/PID/fd shows it: the file may not be there yet.
void resolve(const char* path, char (&to)[PATH_MAX]) {
  const history::QuietCall quiet;
  to[0] = 0;
  char folder[PATH_MAX];
  const char* const slash = std::strrchr(path, '/');
  const std::size_t length = slash == nullptr ? 0 : static_cast<std::size_t>(slash - path);
  if (realpath(path, to) != nullptr || length >= sizeof folder - 1)
    return;
  std::snprintf(folder, sizeof folder, "%.*s", static_cast<int>(length), path);
  char known[PATH_MAX];
  const char* const of = slash == nullptr ? "." : length == 0 ? "/" : folder;
  to[0] = 0;
  if (realpath(of, known) == nullptr)
    return;
  const char* const name = slash == nullptr ? path : slash + 1;
  const int bytes =
      std::snprintf(to, sizeof to, "%s/%s", std::strcmp(known, "/") == 0 ? "" : known, name);
  if (bytes < 0 || static_cast<std::size_t>(bytes) >= sizeof to)
    to[0] = 0;
}

void begins(Begins what) {
  history::Writer& writer = *recorder->writer;
  const std::uint32_t site = recorder->python_sites.site(writer, /*backward=*/-1);
  if (const BeginCount count = writer.count_begin(what, site); count.told)
    writer.tell_begin(what, site, count, "");
}

/// `arguments`: a tuple of the path or descriptor, the mode and the flags.
void opens(std::uint64_t arguments) {
  constexpr std::uint64_t kTupleLength = 16;
  const PythonSites& sites = recorder->python_sites;
  std::uint64_t length = 0, first = 0, type = 0;
  python::load(Direct{}, arguments + kTupleLength, length);
  if (length == 0)
    return;
  const std::uint64_t items = arguments + sites.layout().tuple_items;
  python::load(Direct{}, items, first);
  python::load(Direct{}, first + python::kObjectType, type);
  if (type == number_type && sites.is_in("Popen._launch", "/multiprocessing/popen_spawn_posix.py"))
    begins(Begins::kSpawned);
  if (type != text_type)
    return;
  history::Writer& writer = *recorder->writer;
  const std::uint32_t site = sites.own_line(writer);
  if (site == 0)
    return;
  const BeginCount count = writer.count_begin(Begins::kFile, site);
  char path[PATH_MAX], resolved[PATH_MAX];
  if (!count.told || python::text_at(sites.layout(), Direct{}, items, path, sizeof path) == 0)
    return;
  resolve(path, resolved);
  if (resolved[0] != 0)
    writer.tell_begin(Begins::kFile, site, count, resolved);
}

bool is(const char* event, const char* name) { return std::strcmp(event, name) == 0; }

/// Called at every audit event, most of which are none of ours.
int on_event(const char* event, void* arguments, void*) {
  if (event[0] == 'o' && event[1] == 'p') {
    if (is(event, "open"))
      opens(reinterpret_cast<std::uint64_t>(arguments));
  } else if (event[0] == 'o' && event[1] == 's') {
    if (is(event, "os.fork") || is(event, "os.forkpty") || is(event, "os.posix_spawn") ||
        is(event, "os.system"))
      begins(Begins::kProcess);
  } else if (event[0] == 's' && event[1] == 'u') {
    if (is(event, "subprocess.Popen"))
      begins(Begins::kProcess);
  } else if (event[0] == '_' && event[1] == 't') {
    if (is(event, "_thread.start_new_thread") || is(event, "_thread.start_joinable_thread")) {
      events_tell_threads = true;
      begins(Begins::kThread);
    }
  }
  return 0;
}

const void* object_of(const void* address) {
  Dl_info found;
  return address != nullptr && dladdr(address, &found) != 0 ? found.dli_fbase : nullptr;
}

}  // namespace

void see_thread(const void* caller) {
  static const void* const interpreter =
      object_of(dlsym(RTLD_DEFAULT, "PyThread_start_new_thread"));
  static const auto holds_gil =
      reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "PyGILState_Check"));
  if (!is_seen || events_tell_threads || interpreter == nullptr || holds_gil == nullptr ||
      object_of(caller) != interpreter || holds_gil() == 0)
    return;
  begins(Begins::kThread);
}

void see_begins() {
  using Hook = int (*)(const char* event, void* arguments, void* data);
  using AddHook = int (*)(Hook hook, void* data);
  const auto add = reinterpret_cast<AddHook>(dlsym(RTLD_DEFAULT, "PySys_AddAuditHook"));
  const auto forget_error = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "PyErr_Clear"));
  text_type = reinterpret_cast<std::uint64_t>(dlsym(RTLD_DEFAULT, "PyUnicode_Type"));
  number_type = reinterpret_cast<std::uint64_t>(dlsym(RTLD_DEFAULT, "PyLong_Type"));
  if (add == nullptr || forget_error == nullptr || text_type == 0 || number_type == 0 ||
      !recorder->writer->remembers())
    return;
  // From here on: what is told later is all that there was.
  recorder->writer->tell_begin(Begins::kNothing, 0, {}, "");
  is_seen = add(on_event, nullptr) == 0;
  if (!is_seen)
    forget_error();  // A hook of the program's own does not want another.
}

}  // namespace lockstep::tap
