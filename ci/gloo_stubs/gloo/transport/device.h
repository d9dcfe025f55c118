// Stands in for gloo's header, which the PyTorch wheel does not ship.
#pragma once

namespace gloo::transport {
class Device;
}  // namespace gloo::transport
