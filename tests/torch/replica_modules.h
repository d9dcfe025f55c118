// Small modules that can be replicated, and derivatives by finite differences.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <memory>
#include <vector>

#include "fixtures/implementations/data_parallel.h"

namespace lockstep::test {

/// A module that is one function of its parameters, buffers and input.
struct FunctionModule {
  using Tensors = std::vector<at::Tensor>;
  using Compute =
      std::function<at::Tensor(const Tensors& parameters, Tensors& buffers, const at::Tensor& input,
                               const parallel::ReplicaPlace& place)>;

  Tensors parameters{};
  Tensors buffers{};
  parallel::ReplicaPlace place{};
};

inline parallel::Module module_of(const std::shared_ptr<FunctionModule>& state,
                                  const FunctionModule::Compute& compute) {
  parallel::Module module;
  for (const at::Tensor& parameter : state->parameters)
    module.parameters.push_back({"p" + std::to_string(module.parameters.size()), parameter});
  module.buffers = [state] {
    std::vector<parallel::NamedTensor> named;
    for (const at::Tensor& buffer : state->buffers)
      named.push_back({"b" + std::to_string(named.size()), buffer});
    return named;
  };
  module.forward = [state, compute](const at::Tensor& input) {
    return compute(state->parameters, state->buffers, input, state->place);
  };
  module.replica = [compute](const parallel::ReplicaParts& parts) {
    return module_of(std::make_shared<FunctionModule>(
                         FunctionModule{parts.parameters, parts.buffers, parts.place}),
                     compute);
  };
  return module;
}

inline parallel::Devices cpus(std::size_t count) {
  return parallel::Devices(count, c10::Device(c10::kCPU));
}

/// Values that no symmetry makes equal; the same every time.
inline at::Tensor values(at::IntArrayRef shape, double phase = 0) {
  std::int64_t numel = 1;
  for (const std::int64_t extent : shape)
    numel *= extent;
  return at::sin(at::arange(numel, at::kDouble) * 0.7 + phase).reshape(shape);
}

inline at::Tensor leaf(const at::Tensor& value) { return value.clone().set_requires_grad(true); }

}  // namespace lockstep::test
