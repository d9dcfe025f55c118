/* What the parts of the shim share. */
#pragma once

#include <limits.h>
#include <stddef.h>
#include <sys/types.h>

#define EXPORTED __attribute__((visibility("default")))

/* Of the tap; null while it is not in. */
struct TapCalls {
  void (*world_left)(void);
  void (*group_begun)(void* store, int rank, int size);
  void (*group_created)(void* group);
  void (*backend_created)(void* backend, void* store);
  void (*thread_begun)(const void* caller);
  size_t (*python_stack)(char* to, size_t size);
  size_t (*exception)(char* to, size_t size);
  void (*leave)(void);
};

extern struct TapCalls tap_calls;
extern char history_directory[PATH_MAX]; /* Empty until the tap is in. */
extern pid_t entered;                    /* Where the tap is in. */
extern int keeps_words;                  /* Of stderr. */
typedef int (*Main)(int, char**, char**);
extern Main real_main;

/* Of a process that was told to be a rank: shim_rank.c. */
void tell_status_of_rank(int status);

/* <directory>/<pid>.<what>, which the report shows; removed if there is no text. */
void tell(const char* directory, const char* what, const char* text);
