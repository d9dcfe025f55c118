// LS_CHECK: an invariant of ours. On in release; aborts with status 134 and says where.
#pragma once

#include <cstdio>
#include <cstdlib>

#define LS_CHECK(condition)                                                               \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      std::fprintf(stderr, "lockstep bug: %s:%d: %s does not hold\n", __FILE__, __LINE__, \
                   #condition);                                                           \
      std::abort();                                                                       \
    }                                                                                     \
  } while (false)
