// Which GPU a CUDA device of this process is, asked of the driver that the process has loaded.
#pragma once

#include <cstdint>

namespace lockstep::tap {

struct CudaDevice {
  std::int32_t visible{};   ///< How many this process sees.
  std::uint8_t uuid[16]{};  ///< Of a part of a GPU (MIG) that of the part.
};

/// False where the driver does not say.
bool ask_driver(int index, CudaDevice& device);

}  // namespace lockstep::tap
