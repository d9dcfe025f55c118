/* Devices that are chosen too late: CUDA_VISIBLE_DEVICES changes when CUDA has read it. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness/tap/shim.h"

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

typedef int (*Set)(const char*, const char*, int);
typedef int (*Unset)(const char*);
static Set real_setenv;
static Unset real_unsetenv;

/* When the process begins, as in shim_end.c. */
__attribute__((constructor)) static void find_real_functions(void) {
  real_setenv = (Set)dlsym(RTLD_NEXT, "setenv");
  real_unsetenv = (Unset)dlsym(RTLD_NEXT, "unsetenv");
  read_devices(devices_at_start);
}

/* The driver's own answer; asking does not initialise it. */
static int cuda_is_initialised(void) {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
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
    if (tap_calls.python_stack != NULL)
      tap_calls.python_stack(text + length, STACK_MAX);
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
