// Errors of the outside world, as values. Our own broken invariants abort (check.h); nothing is
// thrown.
#pragma once

#include <boost/system/result.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace lockstep {

/// What went wrong outside of us, and what the user can do next.
struct Error {
  enum class Kind { kUsage, kEnvironment, kIo, kTimeout, kMalformedHistory, kHost, kInterrupted };
  Kind kind{};
  std::string what{};  ///< Subject, have, need: "cannot attach to 71: ptrace_scope is 1, need 0".
  std::string help{};  ///< One next step, or empty.
};

template <class T>
using Result = boost::system::result<T, Error>;

[[noreturn]] inline void throw_exception_from_error(const Error& error,
                                                    const boost::source_location&) {
  // Only reached by .value() on an error, which is a bug of ours.
  std::fprintf(stderr, "lockstep bug: unchecked error: %s\n", error.what.c_str());
  std::abort();
}

}  // namespace lockstep
