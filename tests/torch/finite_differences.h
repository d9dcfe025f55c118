// Whether first and second derivatives that autograd computes are those of finite differences: what
// torch.autograd.gradcheck and gradgradcheck ask, along one drawn direction.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <vector>

#include "tests/torch/replica_modules.h"

namespace lockstep::test {

using Inputs = std::vector<at::Tensor>;
/// Any function of leaves; its outputs may have any shapes.
/// (Cubed before they are differentiated twice, so that a linear one has a second derivative.)
using Differentiable = std::function<Inputs(const Inputs&)>;

namespace finite_differences {

inline at::Tensor weighed(const Inputs& tensors, double phase) {
  at::Tensor sum = at::zeros({}, at::kDouble);
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined())
      sum = sum + (tensor * values(tensor.sizes(), phase)).sum();
  }
  return sum;
}

inline Inputs leaves(const Inputs& at, double step) {
  Inputs result;
  for (const at::Tensor& value : at)
    result.push_back(leaf(value.detach() + step * values(value.sizes(), 2.0)));
  return result;
}

// The slope of `scalar` along the direction, by autograd and by a central difference.
inline void expect_slope(const std::function<at::Tensor(const Inputs&)>& scalar, const Inputs& at,
                         const char* what) {
  const Inputs x = leaves(at, 0);
  const at::Tensor value = scalar(x);
  const Inputs gradient = torch::autograd::grad({value}, x, {}, std::nullopt,
                                                /*create_graph=*/false, /*allow_unused=*/true);
  double slope = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (gradient[i].defined())
      slope += (gradient[i] * values(x[i].sizes(), 2.0)).sum().item<double>();
  }
  constexpr double kStep = 1e-5;
  const double expected =
      (scalar(leaves(at, kStep)).item<double>() - scalar(leaves(at, -kStep)).item<double>()) /
      (2 * kStep);
  EXPECT_NEAR(slope, expected, 1e-7 * (std::abs(expected) + 1)) << what;
  EXPECT_GT(std::abs(expected), 1e-3) << what << " has a slope that proves nothing";
}

}  // namespace finite_differences

inline void expect_gradient(const Differentiable& function, const Inputs& at) {
  using namespace finite_differences;
  expect_slope([&](const Inputs& x) { return weighed(function(x), 1.0); }, at, "gradient");
}

inline void expect_second_gradient(const Differentiable& function, const Inputs& at) {
  using namespace finite_differences;
  const auto gradient = [&](const Inputs& x) {
    Inputs outputs = function(x);
    for (at::Tensor& output : outputs)
      output = output.pow(3);
    return weighed(torch::autograd::grad({weighed(outputs, 1.0)}, x, {}, std::nullopt,
                                         /*create_graph=*/true, /*allow_unused=*/true),
                   3.0);
  };
  expect_slope(gradient, at, "second gradient");
}

}  // namespace lockstep::test
