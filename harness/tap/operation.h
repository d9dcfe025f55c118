// What the tap knows of one c10d operator: where its arguments lie, read once from the schema by
// name and type so that every torch version is read the same way; and how to turn a call's
// arguments into a record.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <optional>
#include <vector>

#include "harness/history/writer.h"

namespace c10 {
struct FunctionSchema;
}
namespace c10d {
class ProcessGroup;
struct ReduceOp;
}  // namespace c10d

namespace at {
class Tensor;
}

namespace lockstep::tap {

/// Of the tensors that a call takes, or gives back.
struct Counts {
  std::uint64_t numel{};
  std::uint64_t hash{};
  history::DType dtype{};
  bool on_device{};      ///< Not all of it is in memory of the CPU.
  std::int32_t gpu{-1};  ///< Of its first tensor on one.
  const at::Tensor* first{};

  void add(const at::Tensor& tensor);
};

/// One call, as it is to be recorded.
struct Call {
  history::Issue issue{};     ///< Everything but the site.
  bool on_device{};           ///< Not all of its tensors are in memory of the CPU.
  std::int32_t gpu{-1};       ///< Index of the first of them on one; see Writer::set_device.
  const at::Tensor* input{};  ///< The first of those handed in; there until the call is passed on.

  /// The splits of an operation, if it has any, are to be added behind them.
  void set_tensors(const Counts& in, const Counts& out);
  void add_splits(const std::vector<std::int64_t>& splits);
};

history::ReduceOp reduce_op_of(const c10d::ReduceOp& reduce_op);

/// The C++ object inside a boxed custom class, borrowed; null if it is something else. The caller
/// knows the class from the schema: asking the type system, or counting references, costs more than
/// the whole record.
inline torch::CustomClassHolder* held_by(const c10::IValue& value) {
  if (!value.isObject())
    return nullptr;
  const auto& slots = value.toObjectRef().slots();
  if (slots.size() != 1 || !slots[0].isCapsule())
    return nullptr;
  void* const target =
      const_cast<void*>(slots[0].internalToPointer());  // Const only as seen through the IValue.
  return static_cast<torch::CustomClassHolder*>(static_cast<c10::intrusive_ptr_target*>(target));
}

class Operation {
 public:
  /// No value for an operator that is not issued on a group.
  static std::optional<Operation> of(const c10::FunctionSchema& schema);

  [[nodiscard]] history::Op op() const { return op_; }
  [[nodiscard]] std::size_t argument_count() const { return argument_count_; }
  [[nodiscard]] bool returns_work() const { return returns_work_; }

  /// Null if the argument is not a group.
  [[nodiscard]] c10d::ProcessGroup* group(const c10::IValue* arguments) const;
  /// Allocates nothing.
  [[nodiscard]] Call read(const c10::IValue* arguments) const;

 private:
  static void add(const c10::IValue& value, Counts& counts);

  history::Op op_{};
  std::size_t argument_count_{};
  bool returns_work_{};
  int group_{-1}, reduce_op_{-1}, root_{-1}, tag_{-1}, timeout_{-1}, async_{-1};
  std::vector<int> inputs_{}, outputs_{}, splits_{};
};

}  // namespace lockstep::tap
