/* The door through which the tap enters: preloaded into every process of a job, it waits until one
 * has loaded LibTorch by itself, and only then loads the tap. It needs libc and nothing else, so a
 * shell that runs with it stays as it was.
 *
 * In the environment:
 *   LOCKSTEP_TAP      the tap, a shared library
 *   LOCKSTEP_TORCH    the libtorch_cpu.so that it was compiled for; into any other it must not go
 *   LOCKSTEP_HISTORY  where the tap writes, and where this file says why a process stays unseen, or
 *                     that it chose its devices too late
 *   LOCKSTEP_LAST_WORDS  set where a launcher of the user's has the stderr of the ranks: what a
 *                     process that has loaded LibTorch writes there last is kept for lockstep
 *   LOCKSTEP_SUPERVISOR  who adopts the orphans of the job, in the place of process 1
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define REGISTER_GROUP                                                   \
  "_ZN4c10d22register_process_groupERKNSt7__cxx1112basic_string"         \
  "IcSt11char_traitsIcESaIcEEERKN3c1013intrusive_ptrINS_12ProcessGroupE" \
  "NS8_6detail34intrusive_target_default_null_typeISA_EEEE"
#define EXPORTED __attribute__((visibility("default")))

typedef void* (*Dlopen)(const char*, int);
typedef int (*Main)(int, char**, char**);
/* c10d::register_process_group(const std::string&, const c10::intrusive_ptr<ProcessGroup>&) */
typedef void (*RegisterGroup)(const void* name, void* const* group);

static Dlopen real_dlopen;
static Main real_main;
static RegisterGroup real_register_group;
/* The tap's; null while it is not in. */
static void (*tell_group_created)(void* group);
static size_t (*python_stack)(char* to, size_t size);
static size_t (*exception)(char* to, size_t size);
static int settled; /* The tap is in, or never will be. */

/* Constructors of a library that is being loaded may load others: LibTorch is ready only when the
 * outermost call has returned. */
static __thread int depth __attribute__((tls_model("initial-exec")));

static void find_real_dlopen(void) {
  if (real_dlopen == NULL)
    real_dlopen = (Dlopen)dlsym(RTLD_NEXT, "dlopen");
}

/* <directory>/<pid>.<what>, which the report shows; removed if there is no text. */
static void tell(const char* directory, const char* what, const char* text) {
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/%d.%s", directory, (int)getpid(), what);
  unlink(path);
  const int file = text == NULL ? -1 : open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0)
    return;
  if (write(file, text, strlen(text)) < 0)
    unlink(path);
  close(file);
}

static void stay_unseen(const char* directory, const char* torch, const char* why) {
  char text[2 * PATH_MAX];
  snprintf(text, sizeof text, "%s: %s\n", torch, why);
  tell(directory, "unseen", text);
}

/* <pid>.err; harness/launch/last_words.cc reads it. */
struct LastWords {
  uint64_t written, at_ns; /* Bytes since the start; when the last of them came. */
  char text[16384];        /* Byte n lies at n modulo its size. */
};

static char history_directory[PATH_MAX]; /* Empty until the tap is in. */
static int keeps_words;
static struct LastWords* words;
static pid_t words_of; /* A forked child has its own. */
static pid_t entered;  /* Here the tap is in. */

static struct LastWords* map_words(pid_t pid) {
  char path[PATH_MAX + 32];
  snprintf(path, sizeof path, "%s/%d.err", history_directory, (int)pid);
  const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  void* mapped = MAP_FAILED;
  if (file >= 0 && posix_fallocate(file, 0, sizeof(struct LastWords)) == 0)
    mapped = mmap(NULL, sizeof(struct LastWords), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file >= 0)
    close(file);
  return mapped == MAP_FAILED ? NULL : (struct LastWords*)mapped;
}

static void keep_last_words(const char* text, size_t size) {
  const int saved = errno;
  const pid_t pid = getpid();
  if (words_of != pid) {
    words = map_words(pid);
    words_of = pid;
  }
  if (words != NULL) {
    struct timespec now;
    const size_t skipped = size > sizeof words->text ? size - sizeof words->text : 0;
    uint64_t at = __atomic_fetch_add(&words->written, size - skipped, __ATOMIC_RELAXED);
    for (size_t i = skipped; i < size; ++i)
      words->text[at++ % sizeof words->text] = text[i];
    clock_gettime(CLOCK_MONOTONIC, &now);
    words->at_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
  }
  errno = saved;
}

typedef ssize_t (*Write)(int, const void*, size_t);
typedef void (*Abort)(void) __attribute__((noreturn));
typedef void (*Exit)(int) __attribute__((noreturn));
typedef int (*Kill)(pid_t, int);
typedef int (*Set)(const char*, const char*, int);
typedef int (*Unset)(const char*);
static Write real_write;
static Abort real_abort;
static Exit real_exit, real_exit_at_once;
static Kill real_kill, real_killpg;
static Set real_setenv;
static Unset real_unsetenv;

/* Looked up when the process begins: a signal handler, or a child between fork and exec, may be
 * the first to call them. */
__attribute__((constructor)) static void find_real_functions(void) {
  real_write = (Write)dlsym(RTLD_NEXT, "write");
  real_abort = (Abort)dlsym(RTLD_NEXT, "abort");
  real_exit = (Exit)dlsym(RTLD_NEXT, "exit");
  real_exit_at_once = (Exit)dlsym(RTLD_NEXT, "_exit");
  real_kill = (Kill)dlsym(RTLD_NEXT, "kill");
  real_killpg = (Kill)dlsym(RTLD_NEXT, "killpg");
  real_setenv = (Set)dlsym(RTLD_NEXT, "setenv");
  real_unsetenv = (Unset)dlsym(RTLD_NEXT, "unsetenv");
}

/* Of Python all comes through here; what std::terminate says does not, see abort(). */
EXPORTED ssize_t write(int file, const void* data, size_t size) {
  if (real_write == NULL)
    find_real_functions();
  const ssize_t wrote = real_write(file, data, size);
  if (wrote > 0 && file == STDERR_FILENO && keeps_words)
    keep_last_words((const char*)data, (size_t)wrote);
  return wrote;
}

/* <pid>.<tid>.aborts is there while a process waits to be looked at; lockstep removes it. A rank
 * that aborts in a collective takes the others with it: a moment later nobody is where they parted.
 * Only of who sleeps the stack can be read: it waits in one poll, not in slices. */
static void let_lockstep_look(void) {
  enum { LIMIT_MS = 2000, SLICE_MS = 10 };
  static int asked;
  char path[PATH_MAX + 32];
  if (history_directory[0] == 0 || __atomic_exchange_n(&asked, 1, __ATOMIC_RELAXED))
    return;
  snprintf(path, sizeof path, "%s/%d.%ld.aborts", history_directory, (int)getpid(),
           syscall(SYS_gettid));
  if (close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600)) != 0)
    return;
  struct pollfd removed = {.fd = inotify_init1(IN_CLOEXEC), .events = POLLIN};
  const int told = inotify_add_watch(removed.fd, path, IN_ATTRIB | IN_DELETE_SELF) >= 0;
  for (int left = LIMIT_MS; left > 0 && access(path, F_OK) == 0; left -= told ? LIMIT_MS : SLICE_MS)
    poll(&removed, 1, told ? LIMIT_MS : SLICE_MS);
  close(removed.fd);
  unlink(path);
}

EXPORTED void abort(void) {
  if (real_abort == NULL)
    find_real_functions();
  if (keeps_words && exception != NULL) {
    char text[2048];
    const size_t size = exception(text, sizeof text);
    if (size > 0)
      keep_last_words(text, size);
  }
  let_lockstep_look();
  real_abort();
}

/* <pid>.exits: a library asked for the end, and not with status 0, as the worker of a pool does
 * when it is told to. What a program says of itself by its status comes from its own code, or by
 * way of the interpreter's. */
static void tell_if_a_library_ends_it(int status, void* caller) {
  Dl_info asks, program;
  if (status == 0 || entered != getpid() || dladdr(caller, &asks) == 0 ||
      dladdr((void*)real_main, &program) == 0 || asks.dli_fbase == program.dli_fbase)
    return;
  const char* const slash = strrchr(asks.dli_fname, '/');
  const char* const name = slash == NULL ? asks.dli_fname : slash + 1;
  if (strncmp(name, "libpython", 9) != 0 && strncmp(name, "libc.so", 7) != 0)
    tell(history_directory, "exits", asks.dli_fname);
}

EXPORTED void exit(int status) {
  tell_if_a_library_ends_it(status, __builtin_return_address(0));
  if (real_exit == NULL)
    find_real_functions();
  real_exit(status);
}

EXPORTED void _exit(int status) {
  tell_if_a_library_ends_it(status, __builtin_return_address(0));
  if (real_exit_at_once == NULL)
    find_real_functions();
  real_exit_at_once(status);
}

EXPORTED void _Exit(int status) {
  tell_if_a_library_ends_it(status, __builtin_return_address(0));
  if (real_exit_at_once == NULL)
    find_real_functions();
  real_exit_at_once(status);
}

/* <pid>.signalled, or <-group>.signalled: which signals that end somebody of the job sent it, when
 * and who, before they arrive. Launchers end ranks so, when they have no more use for them or are
 * asked to end. */
static void tell_who_signals(pid_t to, int signal) {
  const int ends = signal == SIGTERM || signal == SIGKILL || signal == SIGINT || signal == SIGHUP ||
                   signal == SIGQUIT;
  const char* const history = ends && to != getpid() ? getenv("LOCKSTEP_HISTORY") : NULL;
  if (history == NULL)
    return;
  enum { SIZE_MAX_OF_FILE = 4096 };
  const int saved = errno;
  struct timespec now;
  char text[PATH_MAX];
  snprintf(text, sizeof text, "%s/%d.signalled", history, (int)(to == 0 ? -getpgrp() : to));
  const int file = open(text, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  clock_gettime(CLOCK_MONOTONIC, &now);
  const int size = snprintf(text, sizeof text, "%d %llu pid %d (%.32s)\n", signal,
                            now.tv_sec * 1000000000ull + (unsigned long long)now.tv_nsec,
                            (int)getpid(), program_invocation_short_name);
  if (file >= 0 && lseek(file, 0, SEEK_END) < SIZE_MAX_OF_FILE)
    (void)!write(file, text, (size_t)size);
  if (file >= 0)
    close(file);
  errno = saved;
}

EXPORTED int kill(pid_t process, int signal) {
  tell_who_signals(process, signal);
  if (real_kill == NULL)
    find_real_functions();
  return real_kill(process, signal);
}

EXPORTED int killpg(pid_t group, int signal) {
  tell_who_signals(-group, signal);
  if (real_killpg == NULL)
    find_real_functions();
  return real_killpg(group, signal);
}

static void enter_if_torch_is_there(void) {
  if (__atomic_load_n(&settled, __ATOMIC_ACQUIRE))
    return;
  const int saved = errno;
  find_real_dlopen();
  struct link_map* const torch = real_dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (torch != NULL && !__atomic_exchange_n(&settled, 1, __ATOMIC_ACQ_REL)) {
    const char* const tap = getenv("LOCKSTEP_TAP");
    const char* const expected = getenv("LOCKSTEP_TORCH");
    const char* const history = getenv("LOCKSTEP_HISTORY");
    struct stat have, need;
    if (tap == NULL || expected == NULL || history == NULL)
      ; /* The job's environment was replaced: nobody asks for a tap. */
    else if (stat(torch->l_name, &have) != 0 || stat(expected, &need) != 0 ||
             have.st_dev != need.st_dev || have.st_ino != need.st_ino)
      stay_unseen(history, torch->l_name,
                  "no tap was built for this LibTorch (lockstep tap build)");
    else {
      void* const loaded = real_dlopen(tap, RTLD_NOW | RTLD_LOCAL);
      if (loaded == NULL)
        stay_unseen(history, torch->l_name, dlerror());
      else {
        snprintf(history_directory, sizeof history_directory, "%s", history);
        entered = getpid();
        keeps_words = getenv("LOCKSTEP_LAST_WORDS") != NULL;
        tell_group_created = (void (*)(void*))dlsym(loaded, "lockstep_tap_group_created");
        python_stack = (size_t(*)(char*, size_t))dlsym(loaded, "lockstep_tap_python_stack");
        exception = (size_t(*)(char*, size_t))dlsym(loaded, "lockstep_tap_exception");
      }
    }
  }
  if (torch != NULL)
    dlclose(torch);
  else
    dlerror(); /* The program must not find our failure in place of its own. */
  errno = saved;
}

/* Everything but a path that may bring LibTorch is passed on by a tail call: the loader takes the
 * return address for the library that asks, whose RUNPATH it searches. */
EXPORTED void* dlopen(const char* file, int mode) {
  find_real_dlopen();
  if (file == NULL || file[0] != '/' || strstr(file, "torch") == NULL ||
      __atomic_load_n(&settled, __ATOMIC_ACQUIRE))
    return real_dlopen(file, mode);
  ++depth;
  void* const library = real_dlopen(file, mode);
  --depth;
  if (library != NULL && depth == 0)
    enter_if_torch_is_there();
  return library;
}

/* Python makes groups known by this function, before anything is issued on them: the one place
 * where a group is seen that its process never uses. Found as the loader would find it for the
 * caller. */
EXPORTED void register_group(const void* name, void* const* group) __asm__(REGISTER_GROUP);
void register_group(const void* name, void* const* group) {
  if (real_register_group == NULL) {
    Dl_info caller;
    find_real_dlopen();
    if (dladdr(__builtin_return_address(0), &caller) != 0) {
      void* const library = real_dlopen(caller.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
      if (library != NULL)
        real_register_group = (RegisterGroup)dlsym(library, REGISTER_GROUP);
    }
    if (real_register_group == NULL)
      real_register_group = (RegisterGroup)dlsym(RTLD_NEXT, REGISTER_GROUP);
  }
  real_register_group(name, group);
  if (tell_group_created != NULL)
    tell_group_created(*group);
}

/* CUDA reads this variable when it is initialised, and never again. */
#define DEVICES "CUDA_VISIBLE_DEVICES"
enum { VALUE_MAX = 256, STACK_MAX = 16384 };

static char devices_at_start[VALUE_MAX], devices_in_force[VALUE_MAX];

static void read_devices(char* to) {
  const char* const value = getenv(DEVICES);
  if (value == NULL)
    snprintf(to, VALUE_MAX, "unset");
  else
    snprintf(to, VALUE_MAX, "\"%.*s\"", (int)strcspn(value, "\n"), value);
}

/* The driver's own answer; asking does not initialise it. */
static int cuda_is_initialised(void) {
  find_real_dlopen();
  void* const driver = real_dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == NULL) {
    dlerror();
    return 0;
  }
  int (*const get_count)(int*) = (int (*)(int*))dlsym(driver, "cuDeviceGetCount");
  int devices = 0;
  const int initialised = get_count != NULL && get_count(&devices) == 0;
  dlclose(driver);
  return initialised;
}

/* In <pid>.late: when, the value at the start, in force and now, and the frames of Python. A change
 * that is taken back was meant for somebody else, a child for example. */
static void devices_changed(const char* before) {
  const int saved = errno;
  const char* const history = getenv("LOCKSTEP_HISTORY");
  char now[VALUE_MAX], text[4 * VALUE_MAX + STACK_MAX];
  read_devices(now);
  if (history != NULL && devices_in_force[0] == 0 && strcmp(before, now) != 0 &&
      cuda_is_initialised())
    memcpy(devices_in_force, before, VALUE_MAX);
  if (history != NULL && devices_in_force[0] != 0) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    const int length =
        snprintf(text, sizeof text - STACK_MAX, "%lld%09ld\n%s\n%s\n%s\n", (long long)at.tv_sec,
                 at.tv_nsec, devices_at_start, devices_in_force, now);
    if (python_stack != NULL)
      python_stack(text + length, STACK_MAX);
    tell(history, "late", strcmp(devices_in_force, now) == 0 ? NULL : text);
  }
  errno = saved;
}

EXPORTED int setenv(const char* name, const char* value, int overwrite) {
  if (real_setenv == NULL)
    find_real_functions();
  char before[VALUE_MAX];
  const int watched = name != NULL && strcmp(name, DEVICES) == 0;
  if (watched)
    read_devices(before);
  const int result = real_setenv(name, value, overwrite);
  if (watched)
    devices_changed(before);
  return result;
}

EXPORTED int unsetenv(const char* name) {
  if (real_unsetenv == NULL)
    find_real_functions();
  char before[VALUE_MAX];
  const int watched = name != NULL && strcmp(name, DEVICES) == 0;
  if (watched)
    read_devices(before);
  const int result = real_unsetenv(name);
  if (watched)
    devices_changed(before);
  return result;
}

static pid_t supervisor;
static pid_t child_of_lockstep; /* This process, if lockstep started it and did not adopt it. */

__attribute__((constructor)) static void learn_of_the_start(void) {
  const char* const text = getenv("LOCKSTEP_SUPERVISOR");
  supervisor = text == NULL ? 0 : (pid_t)atoi(text);
  if (syscall(SYS_getppid) == supervisor)
    child_of_lockstep = getpid();
  read_devices(devices_at_start);
}

/* Watchdogs leave when their parent has become process 1: without lockstep it would have. */
EXPORTED pid_t getppid(void) {
  const pid_t parent = (pid_t)syscall(SYS_getppid);
  return supervisor > 0 && parent == supervisor && getpid() != child_of_lockstep ? 1 : parent;
}

static int main_of_program(int argc, char** argv, char** environment) {
  enter_if_torch_is_there();
  return real_main(argc, argv, environment);
}

/* A program that is linked to LibTorch has it, with all constructors run, when main begins. */
EXPORTED int __libc_start_main(Main program, int argc, char** argv, void (*init)(void),
                               void (*finish)(void), void (*loader_finish)(void), void* stack_end) {
  typedef int (*Start)(Main, int, char**, void (*)(void), void (*)(void), void (*)(void), void*);
  const Start real_start = (Start)dlsym(RTLD_NEXT, "__libc_start_main");
  real_main = program;
  return real_start(main_of_program, argc, argv, init, finish, loader_finish, stack_end);
}
