// Stands in for gloo's header, which the PyTorch wheel does not ship. Only ever used through
// pointers.
#pragma once

#include <chrono>

namespace gloo {

namespace transport {
class UnboundBuffer;
}  // namespace transport

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
