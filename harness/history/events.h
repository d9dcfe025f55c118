// What the supervisor recorded, event by event.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/base/rank_set.h"
#include "harness/history/collective.h"
#include "harness/history/sender.h"

namespace lockstep {

/// kBeside is in no journal: a rank's start or end that is not that of the process which is the
/// rank (history/rank_places.h).
enum class Role : std::uint8_t { kRank, kReference, kWarmParent, kOther, kBeside };

struct ProcessStart {
  std::uint64_t record{}, at_ns{};
  Role role{};
  std::optional<Rank> rank{};
  std::int32_t pid{};
  std::int32_t parent{};  ///< When it was found; 0: not known.
  std::string parent_name{};
  std::string command{};                  ///< Its command line, of a rank; empty: not known.
  std::int32_t world_size{};              ///< As its environment says; 0: it does not.
  std::string meets_at{};                 ///< "127.0.0.1:29500", as its environment says.
  std::optional<std::int32_t> attempt{};  ///< How often an elastic launcher had started it again.
  std::optional<std::int32_t> task{};     ///< Of those that mpirun or srun started at once: which,
  std::int32_t tasks{};                   ///< and of how many.
};

/// How a process ended. The last signal of ours is in the same record, so losing another record can
/// never turn our own doing into a finding.
struct ProcessEnd {
  std::uint64_t record{}, at_ns{};
  Role role{};
  std::optional<Rank> rank{};
  std::int32_t pid{};
  std::optional<std::int32_t> exit_status{};  ///< Exited with this status.
  std::optional<std::int32_t> signal{};       ///< Or was killed by this signal.
  std::optional<std::int32_t> our_signal{};   ///< The last signal we sent it.
  std::string our_reason{};                   ///< Why we sent it.
  std::string last_line{};                    ///< Of its stderr, where it raised nothing there.
  /// Who of the job sent the signal it ended by, or before it aborted one that may be why (see
  /// Ending::as_asked).
  std::optional<Sender> sender{};
  std::uint64_t asked_ns{};  ///< When somebody of the job first sent it one; with a sender.

  [[nodiscard]] bool failed() const { return signal || exit_status.value_or(0) != 0; }
};

/// Something lockstep did: a signal sent, a limit that fired.
struct Acted {
  std::uint64_t record{}, at_ns{};
  std::string action{};  ///< "TERM", "KILL", "STOP", "deadline", "interrupted".
  std::optional<Rank> rank{};
  std::int32_t pid{};
  std::string reason{};
};

struct ThreadState {
  std::int32_t tid{};
  char state{};                      ///< As in /proc: R S D T t Z.
  std::string wchan{};               ///< Where it sleeps in the kernel.
  std::uint64_t context_switches{};  ///< Voluntary: how often it went to sleep.
  std::uint64_t cpu_ns{};
  bool for_own_threads{};  ///< In a futex that only threads of its process can wake,
  bool for_ever{};         ///< and without a limit,
  std::optional<std::uint64_t> until_ns{};  ///< or until then.
};

struct ChildState {
  std::int32_t pid{};
  std::string name{};
  char state{};
  std::string wchan{};  ///< Of its main thread.
};

/// The threads of one process at one instant, with the head of its history, read before and after.
struct StateSample {
  std::uint64_t record{}, at_ns{};
  std::optional<Rank> rank{};
  std::int32_t pid{};
  std::uint64_t head{};  ///< Records written by the process when the sample was taken.
  std::vector<ThreadState> threads{};
  std::vector<ChildState> children{};
  std::optional<std::uint64_t>
      caught_signals{};  ///< Those that it has a handler for, signal 1 in the lowest bit.
  std::optional<std::int32_t> waits_for_child{};  ///< Of the main thread; -1: any.
  RankSet held_by{};  ///< Who has the file lock, or the other end, that it waits for.
};

/// A variable of a Python function, or of a module's own code, that held an integer.
struct IntegerVariable {
  std::uint32_t frame{};  ///< Index in the frames of the sample.
  std::string name{};
  std::int64_t value{};
};

/// The frames of one thread, innermost first.
struct StackSample {
  std::uint64_t record{}, at_ns{};
  std::optional<Rank> rank{};
  std::int32_t pid{};
  std::int32_t tid{};
  std::vector<Frame> frames{};
  std::vector<IntegerVariable> variables{};
  /// The exception that it is handling there, in an `except` or a `finally`, and where that was
  /// raised, innermost first: the last frame is the one that handles it. Empty: none.
  std::string handles{};
  CallSite raised_at{};
  std::uint64_t started_ns{};  ///< The thread, to a tick of the kernel's; 0: not known.
};

/// A request of the conversation, and its answer once there is one.
struct Request {
  std::uint64_t record{}, at_ns{};
  Role role{};
  std::optional<Rank> rank{};
  std::uint64_t id{};
  std::string message{};  ///< "hello", "init", "step", ...
  std::optional<std::uint64_t> answered_ns{};
  std::string outcome{};  ///< "ok", "unsupported", "refused" (declared), "failed", "protocol"
                          ///< (garbage, twice, late); "" = none yet.
  std::string text{};     ///< What `failed`/`unsupported`/`protocol` said.
  CallSite raised_at{};   ///< Where the exception behind `failed` was thrown, if seen.
};

/// A value observed after a request. The bytes stay in the tensor file; see Run::tensor.
struct Observation {
  std::uint64_t record{}, at_ns{};
  Role role{};  ///< kReference: what the value should be.
  std::optional<Rank>
      rank{};          ///< On a reference observation: only for this rank; none = for all ranks.
  std::string name{};  ///< "grad/fc1.weight", "param/...", "buffer/...", "loss", "output".
  std::int64_t step{};
  std::string phase{};  ///< "initial", "forward_entry", "forward_entry/1", "after_forward",
                        ///< "after_backward", ...
  std::string
      variant{};        ///< Reference only: "" = right, else a mutant's arithmetic, for the power.
  std::string dtype{};  ///< safetensors name: F32, F64, BF16, I64, ...
  std::vector<std::int64_t> shape{};
  std::string digest{};  ///< Of the bytes, hex.
  std::string file{};    ///< Relative to RUN.
  std::string key{};     ///< Name of the tensor in that file, where it is not `name`.
};

/// An exception that a process printed before it ended.
struct Raised {
  std::uint64_t record{}, at_ns{};  ///< When it was printed.
  std::optional<Rank> rank{};
  std::int32_t pid{};
  std::string text{};       ///< "ValueError: bad batch".
  std::string found_out{};  ///< "port 29500 is held by pid 991 (python old.py)", as of then.
  CallSite raised_at{};
};

/// "This really happened": what a case is about, proven to have taken place.
struct Mark {
  std::uint64_t record{}, at_ns{};
  std::string name{};
};

struct Note {
  std::uint64_t record{}, at_ns{};
  std::string text{};
};

/// A process, and when it started, to a tick of the kernel's.
struct Ancestor {
  std::int32_t pid{};
  std::uint64_t started_ns{};
};

/// Something of the job that was still there when all of it should have been gone, as it was found.
struct Leftover {
  std::uint64_t record{}, at_ns{};
  std::string kind{};          ///< "process"; "segment" of shared memory, "directory", "lock".
  std::string name{};          ///< Its command line; its path.
  std::int32_t pid{};          ///< Of the process; of the one that made or held the segment.
  std::optional<Rank> rank{};  ///< The rank that this process is or descends from, where known.
  std::int32_t parent{};       ///< Of the process when it was first seen; 0: not known.
  std::string parent_name{};
  std::vector<std::string> ports{};  ///< Where it listens.
  std::vector<std::string> gpus{};   ///< "/dev/nvidia0": whose memory it may have.
  std::uint64_t bytes{};             ///< Of a segment.
  /// The process itself, then those above it as they were when first seen.
  std::vector<Ancestor> lineage{};
};

/// How many descriptors a rank has open: when it was found, and whenever they had grown by half.
struct Descriptors {
  std::uint64_t record{}, at_ns{};
  std::optional<Rank> rank{};
  std::int32_t pid{};
  std::uint64_t open{};
  std::uint64_t limit{};                                       ///< RLIMIT_NOFILE, the soft one.
  std::vector<std::pair<std::string, std::uint64_t>> kinds{};  ///< Most frequent first.
  /// Files, by path, and how often each; not all of them where there are many.
  std::vector<std::pair<std::string, std::uint64_t>> files{};
};

/// A process of the job that had ended, and for a second or more its living parent did not ask.
struct Unwaited {
  std::uint64_t record{}, at_ns{};  ///< When it was last seen so.
  std::uint64_t since_ns{};         ///< When it was first.
  std::int32_t pid{};
  std::string name{};
  std::optional<Rank> rank{};
  std::int32_t parent{};
  std::string parent_name{};
  bool taken{};  ///< The parent asked at last; else it ended itself, or the job was over.
  std::optional<std::int32_t> parent_waits_for{};  ///< Another child by name; -1: any.
};

/// Whoever started ranks was killed by a signal while they lived: nobody waits for them any more.
struct LauncherEnd {
  std::uint64_t record{}, at_ns{};
  std::int32_t pid{};
  std::string name{};  ///< "torchrun".
  std::int32_t signal{};
  RankSet ranks{};  ///< That lived, and their processes.
  std::vector<std::int32_t> pids{};
};

/// At the other end of a connection of a rank, on its host, is a process that is none of the job's.
struct Stranger {
  std::uint64_t record{}, at_ns{};
  std::optional<Rank> rank{};
  std::int32_t pid{};     ///< Of the rank.
  std::string address{};  ///< Where they met: "127.0.0.1:29500".
  std::int32_t other{};   ///< Its pid; 0: it is another user's, and not told.
  std::string name{};     ///< Its command line, or whose it is.
};

/// The lockstep of another host of the job said nothing more, without a word that it ends.
struct HostSilent {
  std::uint64_t record{}, at_ns{};
  std::string host{};
  RankSet ranks{};           ///< That it had.
  std::uint64_t since_ns{};  ///< When it was last heard of, in the clock of who tells it.
};

/// What a rank has sent to another host is not acknowledged, and was sent again.
struct Unacknowledged {
  std::uint64_t record{}, at_ns{};
  std::optional<Rank> rank{};
  std::int32_t pid{};
  std::string address{};  ///< Of the other end: "10.9.0.2:4711".
  std::string host{};     ///< That has this address; it was heard of all the time.
  RankSet ranks{};        ///< Of that host.
  std::uint64_t bytes{};
  std::uint64_t tries{};  ///< How often it was sent again, in vain.
};

/// A process changed CUDA_VISIBLE_DEVICES after CUDA had been initialised, and did not change it
/// back: as its shim tells.
struct LateDevices {
  std::uint64_t at_ns{};
  std::int32_t pid{};
  std::string at_start{}, in_force{}, set{};  ///< Quoted values; "unset".
  CallSite site{};                            ///< Empty where Python was not seen.
};

}  // namespace lockstep
