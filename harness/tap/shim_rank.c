/* Who is told which rank it is. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/tap/shim.h"

/* Of its environment when it began: "RANK=3" between two zeros, or at its start. */
static int was_told(pid_t process, const char* rank) {
  char path[64], entry[64], text[1 << 16];
  snprintf(path, sizeof path, "/proc/%d/environ", (int)process);
  const size_t wanted = (size_t)snprintf(entry, sizeof entry, "RANK=%s", rank) + 1;
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  size_t size = 0;
  for (ssize_t got = 1; file >= 0 && got > 0 && size<sizeof text; size += got> 0 ? (size_t)got : 0)
    got = read(file, text + size, sizeof text - size);
  if (file >= 0)
    close(file);
  for (size_t at = 0; wanted <= sizeof entry && at + wanted <= size;
       at += strnlen(text + at, size - at) + 1) {
    if (memcmp(text + at, entry, wanted) == 0)
      return 1;
  }
  return 0;
}

static pid_t told;
static char told_rank[16];

/* <pid>.rank, before anything else happens in a process that is told so and whose parent was not
 * (what a rank starts is told, too): it may not live for long, and what it says last may be all
 * that there is to know of it. Only where a launcher of the user's starts the ranks. */
__attribute__((constructor)) static void tell_of_a_rank(void) {
  const char* const rank = getenv("RANK");
  const char* const history = getenv("LOCKSTEP_HISTORY");
  if (rank == NULL || history == NULL || getenv("LOCKSTEP_LAST_WORDS") == NULL ||
      was_told(getppid(), rank))
    return;
  snprintf(history_directory, sizeof history_directory, "%s", history);
  keeps_words = 1;
  told = getpid();
  snprintf(told_rank, sizeof told_rank, "%.12s", rank);
  tell(history, "rank", told_rank);
}

/* And the status that it ends with, which nobody may be there to see. */
void tell_status_of_rank(int status) {
  char text[64];
  snprintf(text, sizeof text, "%s %d", told_rank, status & 0xff);
  if (told == getpid())
    tell(history_directory, "rank", text);
}
