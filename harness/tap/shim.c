/* The door through which the tap enters: preloaded into every process of a job, it waits until one
 * has loaded LibTorch by itself, and only then loads the tap. It needs libc and nothing else, so a
 * shell that runs with it stays as it was.
 *
 * In the environment:
 *   LOCKSTEP_TAPS     <this>-<size>-<time> is the folder of the tap that was compiled for the
 *                     libtorch_cpu.so of this size, written at this time
 *   LOCKSTEP_READY_TAPS  <this>/<major.minor> is the folder of a tap that came with lockstep, for
 *                     releases of this torch; absent if none did
 *   LOCKSTEP_HISTORY  where the tap writes, and where the shim says why a process stays unseen, or
 *                     that it chose its devices too late
 *   LOCKSTEP_LAST_WORDS  set where a launcher of the user's has the stderr of the ranks: what a
 *                     process that has loaded LibTorch writes there last is kept for lockstep
 *   LOCKSTEP_SUPERVISOR  who adopts the orphans of the job, in the place of process 1
 */
#include "harness/tap/shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REGISTER_GROUP                                                   \
  "_ZN4c10d22register_process_groupERKNSt7__cxx1112basic_string"         \
  "IcSt11char_traitsIcESaIcEEERKN3c1013intrusive_ptrINS_12ProcessGroupE" \
  "NS8_6detail34intrusive_target_default_null_typeISA_EEEE"

#define MAKE_GROUP                                                        \
  "_ZN4c10d12ProcessGroupC1EN3c1013intrusive_ptrINS_5StoreENS1_6detail34" \
  "intrusive_target_default_null_typeIS3_EEEEii"

#define SET_GLOBAL_RANK "_ZN3c1013SetGlobalRankEl"

#define MAKE_GLOO                                                      \
  "_ZN4c10d16ProcessGroupGlooC1ERKN3c1013intrusive_ptrINS_5StoreENS1_" \
  "6detail34intrusive_target_default_null_typeIS3_EEEEiiNS2_INS0_"     \
  "7OptionsENS5_ISA_EEEE"

typedef void* (*Dlopen)(const char*, int);
/* c10d::register_process_group(const std::string&, const c10::intrusive_ptr<ProcessGroup>&) */
typedef void (*RegisterGroup)(const void* name, void* const* group);
/* c10d::ProcessGroup(c10::intrusive_ptr<Store>, int rank, int size): what is handed over by value
 * is made by the caller, who passes its address. */
typedef void (*MakeGroup)(void* self, void* const* store, int rank, int size);

/* c10d::ProcessGroupGloo(const c10::intrusive_ptr<Store>&, int rank, int size,
 * intrusive_ptr<Options>): what is handed over by value is made by the caller, who passes its
 * address. */
typedef void (*MakeGloo)(void* self, void* const* store, int rank, int size, void* options);

static Dlopen real_dlopen;
static RegisterGroup real_register_group;
static MakeGroup real_make_group;
static MakeGloo real_make_gloo;
static void (*real_set_global_rank)(long); /* c10::SetGlobalRank(std::int64_t) */
static int settled;                        /* The tap is in, or never will be. */
struct TapCalls tap_calls;
char history_directory[PATH_MAX];
pid_t entered;
int keeps_words;
Main real_main;

/* Constructors of a library that is being loaded may load others: LibTorch is ready only when the
 * outermost call has returned. */
static __thread int depth __attribute__((tls_model("initial-exec")));

static void find_real_dlopen(void) {
  if (real_dlopen == NULL)
    real_dlopen = (Dlopen)dlsym(RTLD_NEXT, "dlopen");
}

void tell(const char* directory, const char* what, const char* text) {
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

/* The number of the release that this library is of, "2.15"; 0 if it is of none: what is built from
 * a state between two may be laid out otherwise. As release_of of harness/entry/torch.h. */
static int find_release(const char* libtorch, char* release, size_t size) {
  static const char* const files[] = {"/version.py", "/build-version"};
  static const char before[] = "\n__version__ = '";
  char path[PATH_MAX], text[1024];
  for (int i = 0; i < 2; ++i) {
    const char* const lib = strstr(libtorch, "/lib/libtorch_cpu.so");
    if (lib == NULL || snprintf(path, sizeof path, "%.*s%s", (int)(lib - libtorch), libtorch,
                                files[i]) >= (int)sizeof path)
      return 0;
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t bytes = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (file >= 0)
      close(file);
    if (bytes < 0)
      continue;
    text[bytes] = 0;
    const char* const python = strstr(text, before);
    const char* const version = python != NULL ? python + sizeof before - 1 : text;
    int major, minor, patch, length = 0;
    if (sscanf(version, "%d.%d.%d%n", &major, &minor, &patch, &length) != 3 ||
        strchr("+'\n", version[length]) == NULL)
      return 0;
    return snprintf(release, size, "%d.%d", major, minor) < (int)size;
  }
  return 0;
}

static int find_ready_tap(const char* libtorch, char* tap) {
  const char* const ready = getenv("LOCKSTEP_READY_TAPS");
  char release[32];
  if (ready == NULL || !find_release(libtorch, release, sizeof release))
    return 0;
  snprintf(tap, PATH_MAX, "%s/%s/liblockstep_tap.so", ready, release);
  return access(tap, F_OK) == 0;
}

/* As tap_folder of harness/entry/torch.h. */
static int find_tap(const char* taps, const char* libtorch, char* tap) {
  struct stat is;
  if (stat(libtorch, &is) != 0)
    return 0;
  snprintf(tap, PATH_MAX, "%s-%llx-%llx/liblockstep_tap.so", taps, (unsigned long long)is.st_size,
           is.st_mtim.tv_sec * 1000000000ull + (unsigned long long)is.st_mtim.tv_nsec);
  return access(tap, F_OK) == 0;
}

static void enter_if_torch_is_there(void) {
  if (__atomic_load_n(&settled, __ATOMIC_ACQUIRE))
    return;
  const int saved = errno;
  find_real_dlopen();
  struct link_map* const torch = real_dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (torch != NULL && !__atomic_exchange_n(&settled, 1, __ATOMIC_ACQ_REL)) {
    const char* const taps = getenv("LOCKSTEP_TAPS");
    const char* const history = getenv("LOCKSTEP_HISTORY");
    char tap[PATH_MAX];
    if (taps == NULL || history == NULL)
      ; /* The job's environment was replaced: nobody asks for a tap. */
    else if (!find_tap(taps, torch->l_name, tap) && !find_ready_tap(torch->l_name, tap))
      stay_unseen(history, torch->l_name,
                  "no tap was built for this LibTorch (lockstep tap build --python PYTHON)");
    else {
      void* const loaded = real_dlopen(tap, RTLD_NOW | RTLD_LOCAL);
      if (loaded == NULL)
        stay_unseen(history, torch->l_name, dlerror());
      else {
        snprintf(history_directory, sizeof history_directory, "%s", history);
        entered = getpid();
        keeps_words = getenv("LOCKSTEP_LAST_WORDS") != NULL;
        tap_calls.world_left = (void (*)(void))dlsym(loaded, "lockstep_tap_world_left");
        tap_calls.group_begun =
            (void (*)(void*, int, int))dlsym(loaded, "lockstep_tap_group_begun");
        tap_calls.group_created = (void (*)(void*))dlsym(loaded, "lockstep_tap_group_created");
        tap_calls.backend_created =
            (void (*)(void*, void*))dlsym(loaded, "lockstep_tap_backend_created");
        tap_calls.thread_begun = (void (*)(const void*))dlsym(loaded, "lockstep_tap_thread_begun");
        tap_calls.python_stack =
            (size_t(*)(char*, size_t))dlsym(loaded, "lockstep_tap_python_stack");
        tap_calls.exception = (size_t(*)(char*, size_t))dlsym(loaded, "lockstep_tap_exception");
        tap_calls.leave = (void (*)(void))dlsym(loaded, "lockstep_tap_leave");
      }
    }
  }
  if (torch != NULL)
    dlclose(torch);
  else
    dlerror(); /* The program must not find our failure in place of its own. */
  errno = saved;
}

/* Of a process that was forked from one that nobody asked to be seen, as ranks are from a warm
 * parent: now its environment says where the tap writes. */
EXPORTED void lockstep_shim_enter(void) {
  if (history_directory[0] != 0)
    return;
  __atomic_store_n(&settled, 0, __ATOMIC_RELEASE);
  enter_if_torch_is_there();
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

/* As the loader would find it for the caller. */
static void* real_of(const char* name, void* caller) {
  Dl_info asks;
  void* real = NULL;
  find_real_dlopen();
  if (dladdr(caller, &asks) != 0) {
    void* const library = real_dlopen(asks.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (library != NULL)
      real = dlsym(library, name);
  }
  return real != NULL ? real : dlsym(RTLD_NEXT, name);
}

/* Python makes groups known by this function, before anything is issued on them: the one place
 * where a group is seen that its process never uses. */
EXPORTED void register_group(const void* name, void* const* group) __asm__(REGISTER_GROUP);
void register_group(const void* name, void* const* group) {
  if (real_register_group == NULL)
    real_register_group = (RegisterGroup)real_of(REGISTER_GROUP, __builtin_return_address(0));
  real_register_group(name, group);
  if (tap_calls.group_created != NULL)
    tap_calls.group_created(*group);
}

/* What Python begins a group with, before its members meet. */
EXPORTED void make_group(void* self, void* const* store, int rank, int size) __asm__(MAKE_GROUP);
void make_group(void* self, void* const* store, int rank, int size) {
  if (real_make_group == NULL)
    real_make_group = (MakeGroup)real_of(MAKE_GROUP, __builtin_return_address(0));
  if (tap_calls.group_begun != NULL)
    tap_calls.group_begun(*store, rank, size);
  real_make_group(self, store, rank, size);
}

/* Where destroy_process_group begins to forget what it knows of the world. */
EXPORTED void set_global_rank(long rank) __asm__(SET_GLOBAL_RANK);
void set_global_rank(long rank) {
  if (real_set_global_rank == NULL)
    real_set_global_rank = (void (*)(long))real_of(SET_GLOBAL_RANK, __builtin_return_address(0));
  if (rank < 0 && tap_calls.world_left != NULL)
    tap_calls.world_left();
  real_set_global_rank(rank);
}

/* A backend that may be used without a group around it, and the one place where it is seen in which
 * store its members met. */
EXPORTED void make_gloo(void* self, void* const* store, int rank, int size,
                        void* options) __asm__(MAKE_GLOO);
void make_gloo(void* self, void* const* store, int rank, int size, void* options) {
  if (real_make_gloo == NULL)
    real_make_gloo = (MakeGloo)real_of(MAKE_GLOO, __builtin_return_address(0));
  real_make_gloo(self, store, rank, size, options);
  if (tap_calls.backend_created != NULL)
    tap_calls.backend_created(self, *store);
}

/* By tail call, as the caller made it. */
EXPORTED int pthread_create(pthread_t* thread, const pthread_attr_t* how, void* (*work)(void*),
                            void* with) {
  typedef int (*Create)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static Create real_create;
  if (real_create == NULL)
    real_create = (Create)dlsym(RTLD_NEXT, "pthread_create");
  if (tap_calls.thread_begun != NULL)
    tap_calls.thread_begun(__builtin_return_address(0));
  return real_create(thread, how, work, with);
}

static pid_t supervisor;
static pid_t child_of_lockstep; /* This process, if lockstep started it and did not adopt it. */

__attribute__((constructor)) static void learn_of_the_start(void) {
  const char* const text = getenv("LOCKSTEP_SUPERVISOR");
  supervisor = text == NULL ? 0 : (pid_t)atoi(text);
  if (syscall(SYS_getppid) == supervisor)
    child_of_lockstep = getpid();
}

/* Watchdogs leave when their parent has become process 1: without lockstep it would have. */
EXPORTED pid_t getppid(void) {
  const pid_t parent = (pid_t)syscall(SYS_getppid);
  return supervisor > 0 && parent == supervisor && getpid() != child_of_lockstep ? 1 : parent;
}

static int main_of_program(int argc, char** argv, char** environment) {
  enter_if_torch_is_there();
  const int status = real_main(argc, argv, environment);
  tell_status_of_rank(status);
  return status;
}

/* A program that is linked to LibTorch has it, with all constructors run, when main begins. */
EXPORTED int __libc_start_main(Main program, int argc, char** argv, void (*init)(void),
                               void (*finish)(void), void (*loader_finish)(void), void* stack_end) {
  typedef int (*Start)(Main, int, char**, void (*)(void), void (*)(void), void (*)(void), void*);
  const Start real_start = (Start)dlsym(RTLD_NEXT, "__libc_start_main");
  real_main = program;
  return real_start(main_of_program, argc, argv, init, finish, loader_finish, stack_end);
}
