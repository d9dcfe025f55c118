// Whether a source file is that of a library.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace lockstep {

/// A header of LibTorch or of the C++ library, or LibTorch's own source: what is inlined or
/// instantiated from it is not where its user is. Nor is our host of a subject in Python.
inline bool is_library_source(std::string_view path) {
  constexpr std::array kParts{
      std::string_view{"site-packages/torch/"}, std::string_view{"dist-packages/torch/"},
      std::string_view{"/include/torch/"},      std::string_view{"/include/ATen/"},
      std::string_view{"/include/c10/"},        std::string_view{"/include/c++/"},
      std::string_view{"torch/csrc/"},          std::string_view{"lockstep/harness/subject/"}};
  return std::any_of(kParts.begin(), kParts.end(), [&](std::string_view part) {
    return path.find(part) != std::string_view::npos;
  });
}

/// Installed by somebody else, into the interpreter or a virtual environment.
inline bool is_installed_package(std::string_view path) {
  return path.find("/site-packages/") != std::string_view::npos ||
         path.find("/dist-packages/") != std::string_view::npos;
}

/// Of Python's own library ("/usr/lib/python3.11/threading.py"), or frozen into the interpreter.
inline bool is_python_library(std::string_view path) {
  return !is_installed_package(path) &&
         (path.find("/lib/python3.") != std::string_view::npos || path.substr(0, 8) == "<frozen ");
}

/// The object that CPython itself is: "libpython3.11.so.1.0", "python3.11".
inline bool is_interpreter(std::string_view module) {
  const std::string_view name = module.substr(module.rfind('/') + 1);
  return name.substr(0, 10) == "libpython3" || name.substr(0, 7) == "python3";
}

}  // namespace lockstep
