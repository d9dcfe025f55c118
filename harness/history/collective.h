// One collective as its rank saw it, and where in the program it was issued.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/base/optional_time.h"
#include "harness/history/vocabulary.h"

namespace lockstep {

/// A loop of a source.
struct SourceLoop {
  std::int32_t line{};
  std::string variable{};  ///< The first name that its rounds are given in Python; empty: none.
  bool runs_out{};  ///< A `for` of Python without break or return: who is behind it had no round
                    ///< left, or an exception.
  friend bool operator==(const SourceLoop&, const SourceLoop&) = default;
};

/// One frame of a call site or stack. Native: `module`+`offset` identify it across ranks; file,
/// line and function are filled by symbols/ when the run is closed (line 0 = not known). Python:
/// the source file is the module, and `function` belongs to the identity.
struct Frame {
  std::string module{};    ///< Path of the mapped object, or of the Python source.
  std::uint64_t offset{};  ///< Of the instruction in the object (return address - 1 for callers).
  std::string file{};
  std::int32_t line{};
  std::string function{};
  std::vector<SourceLoop> loops{};  ///< Around it in its function and in those that this one was
                                    ///< inlined into, outermost first; empty where there is none,
                                    ///< or the source was not read.
  std::string inlined_into{};       ///< The function of the object, where that is another one.
  bool in_finally{};  ///< Of Python: in the block of a `finally`, which passes an exception on.

  [[nodiscard]] bool is_python() const {
    const std::string_view name(module);
    return !name.empty() &&
           (name.front() == '<' || (name.size() > 3 && name.substr(name.size() - 3) == ".py"));
  }
  friend bool operator==(const Frame&, const Frame&) = default;
};

/// Where a collective was issued; innermost frame first. Compared across ranks by module and
/// offset.
struct CallSite {
  std::vector<Frame> frames{};
};

/// One collective or point-to-point operation, as its rank saw it. There are millions of them: the
/// members stand by size.
struct Collective {
  std::uint64_t record{};  ///< Number in its file; consecutive where nothing was dropped.
  std::uint64_t
      seq{};  ///< Per group for collectives; per (group, source, destination, tag) for p2p.
  std::uint64_t numel_in{};     ///< Elements handed in, summed over the tensors of this rank.
  std::uint64_t numel_out{};    ///< Elements of the result, likewise.
  std::uint64_t counts_hash{};  ///< Of the per-tensor sizes; equal lists hash alike.
  std::uint64_t issued_ns{};
  OptionalTime returned_ns{};   ///< The call came back (an async one: at once).
  OptionalTime completed_ns{};  ///< The result is there, or `failed`.
  std::int64_t timeout_ms{-1};  ///< Given by the caller; -1 = the group's own.
  /// Of an all-to-all whose shares are told, whom it sends how much and from whom it receives how
  /// much (format.h).
  struct Exchange {
    std::uint64_t sent{}, received{};
  } exchange{};
  std::uint32_t group{};  ///< Index into Process::groups.
  std::int32_t root{-1};  ///< Group rank of the root; of the peer for p2p; -1 where there is none.
  std::int32_t tag{};
  std::uint32_t thread{};  ///< Kernel thread id.
  std::uint32_t site{};    ///< Index into Process::sites; 0 = not recorded.
  history::Op op{};
  history::DType dtype{};
  history::ReduceOp reduce_op{};
  bool async{};
  bool overlapped{};   ///< Issued while another thread was inside a call on the same group: order
                       ///< not known.
  bool shares_told{};  ///< There is an `exchange`.
  bool gaps{};         ///< Of a tensor with gaps, to a backend that handles what lies in memory.
  bool failed{};
  bool completion_unseen{};  ///< Its completion is never told: an absent one says nothing.
};

}  // namespace lockstep
