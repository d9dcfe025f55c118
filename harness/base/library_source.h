// Whether a source file is that of a library.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace lockstep {

/// A header of LibTorch or of the C++ library, or LibTorch's own source: what is inlined or
/// instantiated from it is not where its user is.
inline bool is_library_source(std::string_view path) {
  constexpr std::array kParts{
      std::string_view{"site-packages/torch/"}, std::string_view{"dist-packages/torch/"},
      std::string_view{"/include/torch/"},      std::string_view{"/include/ATen/"},
      std::string_view{"/include/c10/"},        std::string_view{"/include/c++/"},
      std::string_view{"torch/csrc/"}};
  return std::any_of(kParts.begin(), kParts.end(), [&](std::string_view part) {
    return path.find(part) != std::string_view::npos;
  });
}

}  // namespace lockstep
