// Which LibTorch a command will load, found without running it.
#pragma once

#include <string>
#include <vector>

#include "harness/base/error.h"

namespace lockstep::entry {

/// A LibTorch with its headers: the PyTorch package of an interpreter, or an unpacked libtorch.
struct Torch {
  std::string root{};     ///< Holds include/ and lib/.
  std::string version{};  ///< "2.15.0", of the headers.
  [[nodiscard]] std::string library() const { return root + "/lib/libtorch_cpu.so"; }
};

/// Of the first Python, Python script or program linked to LibTorch among the words of the command;
/// for a launcher that names none, of the Python of VIRTUAL_ENV or PATH. Errors: kEnvironment, none
/// is there, or a program that cannot be entered (static, setuid, with a sanitizer).
Result<Torch> torch_of_command(const std::vector<std::string>& command);

/// Of this Python, script or program and no other. Errors: kEnvironment, it has none.
Result<Torch> torch_of_program(const std::string& program);

}  // namespace lockstep::entry
