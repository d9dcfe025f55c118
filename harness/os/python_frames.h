// What the threads of a Python process are doing, read from outside: the interpreter's own frames,
// by process_vm_readv. Nothing is stopped, no signal is sent, and the GIL may be held for ever; the
// right to read is that of ptrace. For the interpreters of harness/python/layout.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/base/error.h"

namespace lockstep::os {

struct PythonFrame {
  std::string file{};
  std::int32_t line{};  ///< 0: the instruction has none.
  std::string function{};
  /// First line of the function << 32 | offset of the instruction, as in a call site of the tap.
  std::uint64_t position{};
  std::vector<std::pair<std::string, std::int64_t>> integers{};  ///< Variables that hold one.
  /// Of a frame of torch.distributed's, where it was asked for: variables that hold a text, and the
  /// object that its variable `group` holds (0: none).
  std::vector<std::pair<std::string, std::string>> texts{};
  std::uint64_t group{};
  friend bool operator==(const PythonFrame&, const PythonFrame&) = default;
};

struct PythonThread {
  std::int32_t tid{};
  std::vector<PythonFrame> frames{};  ///< Innermost first.
  /// Two readings one after the other were not the same: it runs Python, and may not be where the
  /// frames say.
  bool moving{};
  /// The exception that it is handling, in an `except` or a `finally`, as a traceback would end:
  /// "KeyError: 2"; and the frames that it passed, from the one that raised it to the one that
  /// handles it. Empty: none.
  std::string handles{};
  std::vector<PythonFrame> passed{};
};

/// A process group of torch.distributed's.
struct PythonGroup {
  std::uint64_t object{};
  std::string name{};
  std::vector<std::int32_t> ranks{};  ///< Global ones of its members, ascending; empty: not told.
};

struct PythonProcess {
  std::vector<PythonThread> threads{};
  /// All that it has; none where no frame leads to them.
  std::optional<std::vector<PythonGroup>> groups{};
};

/// As read_python_threads(), with what the frames of torch.distributed hold. Some milliseconds.
Result<PythonProcess> read_python_process(std::int32_t pid);

/// The threads that have Python frames, of the main interpreter. Errors: kEnvironment (not Python,
/// or none that is known; not permitted; gone). About a millisecond.
Result<std::vector<PythonThread>> read_python_threads(std::int32_t pid);

}  // namespace lockstep::os
