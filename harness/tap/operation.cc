#include "harness/tap/operation.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>

#include <string_view>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace lockstep::tap {
namespace {

using history::DType;
using history::Op;
using history::ReduceOp;

struct Name {
  std::string_view schema{};
  Op op{};
};

constexpr Name kNames[] = {
    {"allreduce_", Op::kAllReduce},
    {"allreduce_coalesced_", Op::kAllReduceCoalesced},
    {"broadcast_", Op::kBroadcast},
    {"reduce_", Op::kReduce},
    {"allgather_", Op::kAllGather},
    {"_allgather_base_", Op::kAllGatherSingle},
    {"allgather_coalesced_", Op::kAllGatherCoalesced},
    {"allgather_into_tensor_coalesced_", Op::kAllGatherCoalesced},
    {"reduce_scatter_", Op::kReduceScatter},
    {"_reduce_scatter_base_", Op::kReduceScatterSingle},
    {"reduce_scatter_tensor_coalesced_", Op::kReduceScatterCoalesced},
    {"gather_", Op::kGather},
    {"gather_into_tensor_", Op::kGather},
    {"scatter_", Op::kScatter},
    {"alltoall_", Op::kAllToAll},
    {"alltoall_base_", Op::kAllToAllSingle},
    {"barrier", Op::kBarrier},
    {"monitored_barrier_", Op::kMonitoredBarrier},
    {"send", Op::kSend},
    {"recv_", Op::kRecv},
    {"recv_any_source_", Op::kRecvAny},
};

Op op_named(std::string_view name) {
  for (const Name& known : kNames) {
    if (name == known.schema)
      return known.op;
  }
  return Op::kUnknown;
}

DType dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kByte:
      return DType::kUInt8;
    case at::kChar:
      return DType::kInt8;
    case at::kShort:
      return DType::kInt16;
    case at::kInt:
      return DType::kInt32;
    case at::kLong:
      return DType::kInt64;
    case at::kHalf:
      return DType::kFloat16;
    case at::kBFloat16:
      return DType::kBFloat16;
    case at::kFloat:
      return DType::kFloat32;
    case at::kDouble:
      return DType::kFloat64;
    case at::kBool:
      return DType::kBool;
    case at::kComplexFloat:
      return DType::kComplex64;
    case at::kComplexDouble:
      return DType::kComplex128;
    default:
      return DType::kOther;
  }
}

}  // namespace

ReduceOp reduce_op_of(const c10d::ReduceOp& reduce_op) {
  switch (reduce_op.op_) {
    case c10d::ReduceOp::SUM:
      return ReduceOp::kSum;
    case c10d::ReduceOp::AVG:
      return ReduceOp::kAvg;
    case c10d::ReduceOp::PRODUCT:
      return ReduceOp::kProduct;
    case c10d::ReduceOp::MIN:
      return ReduceOp::kMin;
    case c10d::ReduceOp::MAX:
      return ReduceOp::kMax;
    case c10d::ReduceOp::BAND:
      return ReduceOp::kBand;
    case c10d::ReduceOp::BOR:
      return ReduceOp::kBor;
    case c10d::ReduceOp::BXOR:
      return ReduceOp::kBxor;
    case c10d::ReduceOp::PREMUL_SUM:
      return ReduceOp::kPremulSum;
    default:
      return ReduceOp::kOther;
  }
}

namespace {

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace

std::optional<Operation> Operation::of(const c10::FunctionSchema& schema) {
  Operation operation;
  operation.op_ =
      op_named(std::string_view(schema.name()).substr(std::string_view("c10d::").size()));
  operation.argument_count_ = schema.arguments().size();
  operation.returns_work_ =
      !schema.returns().empty() && contains(schema.returns().back().type()->str(), "c10d.Work");
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    const std::string name = schema.arguments()[i].name();
    const std::string type = schema.arguments()[i].type()->str();
    const int at = static_cast<int>(i);
    if (contains(type, "c10d.ProcessGroup"))
      operation.group_ = at;
    else if (contains(type, "c10d.ReduceOp"))
      operation.reduce_op_ = at;
    else if (name == "root_rank" || name == "dst" || name == "src")
      operation.root_ = at;
    else if (name == "tag")
      operation.tag_ = at;
    else if (name == "timeout")
      operation.timeout_ = at;
    else if (name == "async_op")
      operation.async_ = at;
    else if (contains(name, "split_sizes"))
      operation.splits_.push_back(at);
    else if (contains(name, "output"))
      operation.outputs_.push_back(at);
    else if (contains(name, "input"))
      operation.inputs_.push_back(at);
    else if (name == "tensors") {  // Worked on in place, sent or received.
      if (operation.op_ != Op::kRecv && operation.op_ != Op::kRecvAny)
        operation.inputs_.push_back(at);
      if (operation.op_ != Op::kSend)
        operation.outputs_.push_back(at);
    }
  }
  if (operation.group_ < 0)
    return std::nullopt;
  return operation;
}

c10d::ProcessGroup* Operation::group(const c10::IValue* arguments) const {
  return static_cast<c10d::ProcessGroup*>(held_by(arguments[group_]));
}

void Counts::add(const at::Tensor& tensor) {
  if (!tensor.defined())
    return;
  first = first == nullptr ? &tensor : first;
  const auto elements = static_cast<std::uint64_t>(tensor.numel());
  const DType type = dtype_of(tensor.scalar_type());
  numel += elements;
  if (!tensor.is_cpu()) {
    on_device = true;
    if (gpu < 0 && tensor.is_cuda())
      gpu = static_cast<std::int32_t>(tensor.get_device());
  }
  hash = history::mix(hash, elements + 1);
  dtype = dtype == DType::kNone || dtype == type ? type : DType::kMixed;
}

void Call::set_tensors(const Counts& in, const Counts& out) {
  issue.numel_in = in.numel;
  issue.numel_out = out.numel;
  issue.dtype = in.dtype != DType::kNone ? in.dtype : out.dtype;
  issue.counts_hash = history::mix(history::mix(in.hash, 1), out.hash);
  on_device = in.on_device || out.on_device;
  gpu = in.gpu >= 0 ? in.gpu : out.gpu;
  input = in.first;
}

namespace {

std::uint64_t elements_of_row(const at::Tensor& tensor) {
  const std::int64_t rows = tensor.defined() && tensor.dim() > 0 ? tensor.size(0) : 0;
  return rows > 0 ? static_cast<std::uint64_t>(tensor.numel() / rows) : 0;
}

std::uint64_t elements_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<std::uint64_t>(tensor.numel()) : 0;
}

/// `elements(i)`: of peer i.
template <class Elements>
std::uint64_t shares(std::uint64_t (*share)(std::uint64_t), std::size_t peers, Elements elements) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < peers; ++i)
    sum += share(i) * elements(i);
  return sum;
}

}  // namespace

void Call::set_exchange(const at::Tensor& to, const at::Tensor& from,
                        const std::vector<std::int64_t>& outputs,
                        const std::vector<std::int64_t>& inputs) {
  const auto rows = [](const std::vector<std::int64_t>& splits, const at::Tensor& tensor) {
    return [&splits, row = elements_of_row(tensor)](std::size_t i) {
      return static_cast<std::uint64_t>(splits[i]) * row;
    };
  };
  issue.exchange = true;
  issue.sent = shares(history::share_of_receiver, inputs.size(), rows(inputs, from));
  issue.received = shares(history::share_of_sender, outputs.size(), rows(outputs, to));
}

void Call::set_exchange(const std::vector<at::Tensor>& outputs,
                        const std::vector<at::Tensor>& inputs) {
  issue.exchange = true;
  issue.sent = shares(history::share_of_receiver, inputs.size(),
                      [&](std::size_t i) { return elements_of(inputs[i]); });
  issue.received = shares(history::share_of_sender, outputs.size(),
                          [&](std::size_t i) { return elements_of(outputs[i]); });
}

// A tensor, a list of tensors, or a list of lists.
void Operation::add(const c10::IValue& value, Counts& counts) {
  if (value.isTensor()) {
    counts.add(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef())
      add(item, counts);
  }
}

Call Operation::read(const c10::IValue* arguments) const {
  Call call;
  history::Issue& issue = call.issue;
  issue.op = op_;
  Counts in, out;
  for (const int at : inputs_)
    add(arguments[at], in);
  for (const int at : outputs_)
    add(arguments[at], out);
  call.set_tensors(in, out);
  if (op_ == Op::kAllToAllSingle && splits_.size() == 2)  // Those of the output come first.
    call.set_exchange(arguments[outputs_.front()].toTensor(), arguments[inputs_.front()].toTensor(),
                      arguments[splits_[0]].toIntVector(), arguments[splits_[1]].toIntVector());
  else if (op_ == Op::kAllToAll)
    call.set_exchange(arguments[outputs_.front()].toTensorVector(),
                      arguments[inputs_.front()].toTensorVector());
  if (reduce_op_ >= 0) {
    const auto* const reduce_op =
        static_cast<const c10d::ReduceOp*>(held_by(arguments[reduce_op_]));
    issue.reduce_op = reduce_op == nullptr ? ReduceOp::kOther : reduce_op_of(*reduce_op);
  }
  if (root_ >= 0)
    issue.root = static_cast<std::int32_t>(arguments[root_].toInt());
  if (tag_ >= 0)
    issue.tag = static_cast<std::int32_t>(arguments[tag_].toInt());
  if (timeout_ >= 0)
    issue.timeout_ms = arguments[timeout_].toInt();
  issue.async = async_ >= 0 ? arguments[async_].toBool() : op_ != Op::kMonitoredBarrier;
  return call;
}

}  // namespace lockstep::tap
