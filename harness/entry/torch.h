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

/// Of the program that the command runs; where that is a launcher, of the first other word, or else
/// of VIRTUAL_ENV, of .venv here, or of PATH, that leads to one. Errors: kEnvironment, none is
/// there, or a program that cannot be entered (static, setuid, with a sanitizer).
Result<Torch> torch_of_command(const std::vector<std::string>& command);

/// Of this Python, script or program and no other. Errors: kEnvironment, it has none.
Result<Torch> torch_of_program(const std::string& program);

/// In this folder. Errors: kEnvironment, none is there, or one of another version.
Result<Torch> torch_in(const std::string& root);

/// Where the tap for this libtorch_cpu.so lies among `taps`, as the shim looks for it
/// (harness/tap/shim.c): it finds out only then which LibTorch a process loads.
std::string tap_folder(const std::string& taps, const std::string& libtorch);

/// "2.15" of a release; empty for what was built from a state between two, which may be laid out
/// otherwise.
std::string release_of(const Torch& torch);

}  // namespace lockstep::entry
