// The words both sides of a history use: operations, element types, reductions. Standard library
// only, because the tap is compiled on the user's host with nothing of ours but the history
// headers.
//
// Values are written to files: never renumber, only append.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep::history {

enum class Op : std::uint8_t {
  kUnknown = 0,
  kAllReduce,
  kAllReduceCoalesced,
  kBroadcast,
  kReduce,
  kAllGather,
  kAllGatherSingle,
  kAllGatherCoalesced,
  kReduceScatter,
  kReduceScatterSingle,
  kReduceScatterCoalesced,
  kGather,
  kScatter,
  kAllToAll,
  kAllToAllSingle,
  kBarrier,
  kMonitoredBarrier,
  kSend,
  kRecv,
  kRecvAny,
  kCount,  // not an operation
};

enum class DType : std::uint8_t {
  kNone = 0,  // the operation has no tensor, or an empty list
  kUInt8,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  kBool,
  kComplex64,
  kComplex128,
  kOther,
  kMixed,  // a list with more than one element type
  kCount,
};

enum class ReduceOp : std::uint8_t {
  kNone = 0,
  kSum,
  kAvg,
  kProduct,
  kMin,
  kMax,
  kBand,
  kBor,
  kBxor,
  kPremulSum,
  kOther,
  kCount
};

constexpr std::string_view name_of(Op op) {
  constexpr std::string_view names[] = {"unknown",
                                        "all_reduce",
                                        "all_reduce_coalesced",
                                        "broadcast",
                                        "reduce",
                                        "all_gather",
                                        "all_gather_into_tensor",
                                        "all_gather_coalesced",
                                        "reduce_scatter",
                                        "reduce_scatter_tensor",
                                        "reduce_scatter_coalesced",
                                        "gather",
                                        "scatter",
                                        "all_to_all",
                                        "all_to_all_single",
                                        "barrier",
                                        "monitored_barrier",
                                        "send",
                                        "recv",
                                        "recv_any"};
  return op < Op::kCount ? names[static_cast<std::size_t>(op)] : names[0];
}

constexpr std::string_view name_of(DType dtype) {
  constexpr std::string_view names[] = {"none",  "uint8",     "int8",       "int16",   "int32",
                                        "int64", "float16",   "bfloat16",   "float32", "float64",
                                        "bool",  "complex64", "complex128", "other",   "mixed"};
  return dtype < DType::kCount ? names[static_cast<std::size_t>(dtype)] : "other";
}

constexpr std::string_view name_of(ReduceOp op) {
  constexpr std::string_view names[] = {"none", "sum", "avg",  "product",    "min",  "max",
                                        "band", "bor", "bxor", "premul_sum", "other"};
  return op < ReduceOp::kCount ? names[static_cast<std::size_t>(op)] : "other";
}

/// What a process was about to begin.
enum class Begins : std::uint8_t {
  kNothing = 0,  ///< But from here on it is seen what it begins.
  kProcess = 1,
  kSpawned = 2,  ///< A process that runs already: multiprocessing's spawn.
  kThread = 3,
  kFile = 4,  ///< Open.
  kCount
};

constexpr bool is_point_to_point(Op op) {
  return op == Op::kSend || op == Op::kRecv || op == Op::kRecvAny;
}

}  // namespace lockstep::history
