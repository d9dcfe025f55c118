// Where an exception was thrown. By the time somebody catches it the stack is gone, so the
// program's own
// __cxa_throw remembers the return addresses of the last throws. The program that links this must
// export the symbol (CMake: ENABLE_EXPORTS), else throws inside shared libraries are not seen.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

namespace lockstep::tap {

/// An address in a mapped file, in that file's own address space; the instruction of the call.
struct ThrowFrame {
  std::string module{};
  std::uint64_t offset{};
};

/// Frames of the throw of `exception`, innermost first. Empty if it was not seen or too long ago.
std::vector<ThrowFrame> throw_site(const std::exception_ptr& exception);

}  // namespace lockstep::tap
