// What tests of wrappers share: models of the catalogue as modules, data by rank and step, and the
// gradients that come out without any wrapper.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <vector>

#include "fixtures/implementations/wrapper.h"
#include "fixtures/rank_host/models.h"
#include "tests/torch/ranks.h"

namespace lockstep::test {

inline parallel::Module module_of(const std::shared_ptr<host::Model>& model) {
  parallel::Module module;
  for (const host::Model::Entry& parameter : model->parameters())
    module.parameters.push_back({parameter.name, parameter.tensor});
  module.buffers = [model] {
    std::vector<parallel::NamedTensor> buffers;
    for (const host::Model::Entry& buffer : model->buffers())
      buffers.push_back({buffer.name, buffer.tensor});
    return buffers;
  };
  module.forward = [model](const at::Tensor& input) { return model->forward(input); };
  return module;
}

inline std::shared_ptr<host::Model> model_of_rank(const std::string& name, int rank,
                                                  at::ScalarType dtype = at::kDouble) {
  return host::make_model(name, dtype, static_cast<std::uint64_t>(rank) + 1);
}

/// Of one rank and step; the same wherever it is drawn.
inline at::Tensor input_of(const host::Model& model, int rank, int step, int rows = 3) {
  std::vector<std::int64_t> shape = model.input_shape();
  shape.insert(shape.begin(), rows);
  std::int64_t numel = 1;
  for (const std::int64_t extent : shape)
    numel *= extent;
  return at::sin(at::arange(numel, at::kDouble) * 0.7 + rank * 1.3 + step * 0.4).reshape(shape);
}

inline at::Tensor mean_loss(host::Model& model, const at::Tensor& output) {
  std::vector<std::int64_t> shape = model.target_shape();
  shape.insert(shape.begin(), output.size(0));
  return model.row_loss(output, at::full(shape, 0.5, output.options())).mean();
}

/// The mean over ranks of the gradients of rank 0's parameters on every rank's data.
inline std::vector<at::Tensor> expected_gradients(const std::string& name, int world, int step) {
  const auto model = model_of_rank(name, 0);
  for (int rank = 0; rank < world; ++rank)
    (mean_loss(*model, model->forward(input_of(*model, rank, step))) / world).backward();
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : model->parameters())
    gradients.push_back(parameter.tensor.grad());
  return gradients;
}

inline void require_gradients(const host::Model& model, const std::vector<at::Tensor>& expected,
                              double tolerance = 1e-12) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto& parameter = model.parameters()[i];
    require(parameter.tensor.grad().defined() == expected[i].defined(),
            (expected[i].defined() ? "a gradient of " : "no gradient of ") + parameter.name);
    if (expected[i].defined() && parameter.tensor.scalar_type() == at::kDouble)
      require(at::allclose(parameter.tensor.grad(), expected[i], 0, tolerance),
              "the mean gradient of " + parameter.name);
  }
}

inline void clear_gradients(const host::Model& model) {
  for (const auto& parameter : model.parameters())
    parameter.tensor.mutable_grad().reset();
}

/// A module out of its parts; buffers as they are.
inline parallel::Module make_module(std::vector<parallel::NamedTensor> parameters,
                                    std::function<at::Tensor(const at::Tensor&)> forward,
                                    std::vector<parallel::NamedTensor> buffers = {}) {
  return {.parameters = std::move(parameters),
          .buffers = [buffers] { return buffers; },
          .forward = std::move(forward)};
}

inline at::Tensor leaf(const at::Tensor& value) { return value.clone().set_requires_grad(true); }

/// What `body` raises, as text; fails the rank if it raises nothing.
template <class Error = c10::Error, class Body>
std::string raised(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  throw std::runtime_error("expected: an exception");
}

inline void require_text(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    require(text.find(part) != std::string::npos, "'" + part + "' in: " + text);
}

}  // namespace lockstep::test
