// Raw code positions to file, line and function: offline, from the object files and their debug
// information.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "harness/history/run.h"

namespace lockstep::symbols {

struct ResolverOptions {
  /// Paths below one of these are shown relative to it: the working directory, and the sources of
  /// the program.
  std::string shorten{};          ///< Empty: the current directory.
  std::size_t modules_max{256};   ///< Object files that are kept open.
  std::size_t cached_max{65536};  ///< Positions that are remembered.
};

/// Not for several threads at once.
class Resolver {
 public:
  explicit Resolver(ResolverOptions options = {});
  ~Resolver();
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;

  /// Fills what is not known: innermost inlined position, and the loops around it as the source
  /// has them. line stays 0 where there is no debug information, and function empty where there is
  /// no symbol either; one that is known stays. Of a Python frame, whose line came with it, the
  /// file is shortened.
  void resolve(Frame& frame);

  /// All frames of a run: call sites, stack samples, places of exceptions.
  void resolve(Run& run);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::symbols
