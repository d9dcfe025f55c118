#include "harness/tap/watched_tensors.h"

#include <ATen/PythonTorchFunctionTLS.h>

#include <cstring>

namespace lockstep::tap {

// Asking a tensor for an attribute would be seen by a mode of the program's that watches torch
// functions.
at::Tensor tensor_of(const PythonApi& python, void* object) {
  const auto before = at::impl::PythonTorchFunctionTLS::get_disabled_state();
  at::impl::PythonTorchFunctionTLS::set_disabled_state(
      at::impl::TorchFunctionDisabledState::ALL_DISABLED);
  void* const address = python.attribute(object, "_cdata");
  at::impl::PythonTorchFunctionTLS::set_disabled_state(before);
  if (address == nullptr)
    return {};
  auto* const tensor = reinterpret_cast<c10::TensorImpl*>(python.number(address));
  python.release(address);
  if (tensor == nullptr)
    return {};
  return at::Tensor(
      c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim_copy(tensor));
}

const char* bytes_of(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != at::kStrided || !tensor.device().is_cpu() ||
      tensor.unsafeGetTensorImpl()->is_python_dispatch() ||
      tensor.key_set().has_any(c10::DispatchKeySet(
          {c10::DispatchKey::Functionalize, c10::DispatchKey::FuncTorchGradWrapper,
           c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::Conjugate,
           c10::DispatchKey::Negative})) ||
      tensor.is_quantized() || !tensor.is_non_overlapping_and_dense())
    return nullptr;
  const std::size_t end = (static_cast<std::size_t>(tensor.storage_offset()) +
                           static_cast<std::size_t>(tensor.numel())) *
                          tensor.itemsize();
  if (!tensor.has_storage() || tensor.storage().nbytes() < end)
    return nullptr;
  return static_cast<const char*>(tensor.const_data_ptr());
}

std::optional<Digest> digest_of(const at::Tensor& tensor) {
  const char* const bytes = bytes_of(tensor);
  if (bytes == nullptr)
    return std::nullopt;
  return digest_of_elements(bytes, static_cast<std::uint64_t>(tensor.numel()),
                            tensor.scalar_type());
}

bool is_finite(const at::Tensor& tensor) {
  constexpr std::size_t kElementsMax = 256;
  const Exponents exponents = exponents_of(tensor.scalar_type());
  const char* const bytes = exponents.mask == 0 ? nullptr : bytes_of(tensor);
  if (bytes == nullptr)
    return true;
  const std::size_t size = tensor.itemsize();
  const auto numel = static_cast<std::size_t>(tensor.numel());
  const std::size_t stride = (numel + kElementsMax - 1) / kElementsMax;
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < numel; i += stride) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + i * size, size);
    seen |= (word & exponents.mask) + exponents.lowest;
  }
  return (seen & exponents.above) == 0;
}

}  // namespace lockstep::tap
