/* How a process ends: what it says last, who aborts, exits or is signalled. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "harness/tap/shim.h"

typedef ssize_t (*Write)(int, const void*, size_t);
typedef void (*Abort)(void) __attribute__((noreturn));
typedef void (*Exit)(int) __attribute__((noreturn));
typedef int (*Kill)(pid_t, int);
static Write real_write;
static Abort real_abort;
static Exit real_exit, real_exit_at_once;
static Kill real_kill, real_killpg;

/* Looked up when the process begins: a signal handler, or a child between fork and exec, may be
 * the first to call them. */
__attribute__((constructor)) static void find_real_functions(void) {
  real_write = (Write)dlsym(RTLD_NEXT, "write");
  real_abort = (Abort)dlsym(RTLD_NEXT, "abort");
  real_exit = (Exit)dlsym(RTLD_NEXT, "exit");
  real_exit_at_once = (Exit)dlsym(RTLD_NEXT, "_exit");
  real_kill = (Kill)dlsym(RTLD_NEXT, "kill");
  real_killpg = (Kill)dlsym(RTLD_NEXT, "killpg");
}

/* <pid>.err; harness/launch/last_words.cc reads it. */
struct LastWords {
  uint64_t written, at_ns; /* Bytes since the start; when the last of them came. */
  char text[16384];        /* Byte n lies at n modulo its size. */
};

static struct LastWords* words;
static pid_t words_of; /* A forked child has its own. */

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
  if (keeps_words && tap_calls.exception != NULL) {
    char text[2048];
    const size_t size = tap_calls.exception(text, sizeof text);
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
  tell_status_of_rank(status);
  tell_if_a_library_ends_it(status, __builtin_return_address(0));
  if (real_exit == NULL)
    find_real_functions();
  real_exit(status);
}

/* Forked children of multiprocessing end so: no destructor runs, the tap's neither. */
__attribute__((noreturn)) static void leave_at_once(int status, void* caller) {
  tell_status_of_rank(status);
  tell_if_a_library_ends_it(status, caller);
  if (tap_calls.leave != NULL)
    tap_calls.leave();
  if (real_exit_at_once == NULL)
    find_real_functions();
  real_exit_at_once(status);
}

EXPORTED void _exit(int status) { leave_at_once(status, __builtin_return_address(0)); }

EXPORTED void _Exit(int status) { leave_at_once(status, __builtin_return_address(0)); }

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
