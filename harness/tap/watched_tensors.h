// The tensors of the program as the watch reads them: by their bytes. No operator is called, no
// attribute is asked for, and what has ideas of its own (a wrapper, a fake one, one in the middle
// of a transform) is left alone.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "harness/tap/python_api.h"
#include "harness/tap/tensor_digest.h"

#pragma GCC visibility push(hidden)

namespace lockstep::tap {

/// Of one that Python holds; empty where it is none.
at::Tensor tensor_of(const PythonApi& python, void* object);

/// Elements in the memory of the CPU that lie side by side, in whatever order; null otherwise.
const char* bytes_of(const at::Tensor& tensor);

std::optional<Digest> digest_of(const at::Tensor& tensor);

/// Some of its elements: where a loss is not finite, hardly one of the gradients is.
bool is_finite(const at::Tensor& tensor);

}  // namespace lockstep::tap

#pragma GCC visibility pop
