#include "harness/tap/device.h"

#include <dlfcn.h>

namespace lockstep::tap {

bool ask_driver(int index, CudaDevice& device) {
  void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) {
    ::dlerror();
    return false;
  }
  // As cuda.h has them; a CUresult of 0 is success.
  const auto count = reinterpret_cast<int (*)(int*)>(::dlsym(driver, "cuDeviceGetCount"));
  const auto get = reinterpret_cast<int (*)(int*, int)>(::dlsym(driver, "cuDeviceGet"));
  void* uuid_of = ::dlsym(driver, "cuDeviceGetUuid_v2");
  if (uuid_of == nullptr)
    uuid_of = ::dlsym(driver, "cuDeviceGetUuid");
  const auto uuid = reinterpret_cast<int (*)(std::uint8_t*, int)>(uuid_of);
  int handle = 0;
  const bool told = count != nullptr && get != nullptr && uuid != nullptr &&
                    count(&device.visible) == 0 && get(&handle, index) == 0 &&
                    uuid(device.uuid, handle) == 0;
  ::dlerror();
  ::dlclose(driver);
  return told;
}

}  // namespace lockstep::tap
