// A Run: everything that is known of one job, as plain values. Readers fill it, checkers judge it,
// tests type it. It holds what was seen and says what could not be seen; it holds no opinion.
//
// Times are nanoseconds of the host's monotonic clock (RUN/run.json and every process file carry
// one monotonic/wall pair). `record` is the number of the event in its file, so that a gap is
// visible.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/base/error.h"
#include "harness/base/rank_set.h"
#include "harness/history/begun.h"
#include "harness/history/plan.h"
#include "harness/history/vocabulary.h"

namespace lockstep {

struct WatchedValues;  // history/watched_values.h

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

/// One collective or point-to-point operation, as its rank saw it.
struct Collective {
  std::uint64_t record{};  ///< Number in its file; consecutive where nothing was dropped.
  std::uint32_t group{};   ///< Index into Process::groups.
  std::uint64_t
      seq{};  ///< Per group for collectives; per (group, source, destination, tag) for p2p.
  history::Op op{};
  history::DType dtype{};
  history::ReduceOp reduce_op{};
  bool async{};
  bool overlapped{};  ///< Issued while another thread was inside a call on the same group: order
                      ///< not known.
  std::int32_t root{-1};  ///< Group rank of the root; of the peer for p2p; -1 where there is none.
  std::int32_t tag{};
  std::uint64_t numel_in{};     ///< Elements handed in, summed over the tensors of this rank.
  std::uint64_t numel_out{};    ///< Elements of the result, likewise.
  std::uint64_t counts_hash{};  ///< Of the per-tensor sizes or splits; equal lists hash alike.
  std::int64_t timeout_ms{-1};  ///< Given by the caller; -1 = the group's own.
  std::uint32_t thread{};       ///< Kernel thread id.
  std::uint32_t site{};         ///< Index into Process::sites; 0 = not recorded.
  std::uint64_t issued_ns{};
  std::optional<std::uint64_t> returned_ns{};   ///< The call came back (an async one: at once).
  std::optional<std::uint64_t> completed_ns{};  ///< The result is there, or `failed`.
  bool failed{};
  bool completion_unseen{};  ///< Its completion is never told: an absent one says nothing.
};

/// A process group as one process sees it.
struct Group {
  std::string name{};
  std::uint32_t generation{};  ///< Counts re-creations under the same name.
  std::int32_t size{};
  std::int32_t my_rank{};     ///< Rank of this process in the group.
  std::vector<Rank> ranks{};  ///< Global ranks by group rank; empty = not known.
  std::uint32_t site{};
  bool seen_from_creation{};  ///< Every collective since the group's creation was seen.
  /// It has no name of its own (made without init_process_group): `name` is the prefix of its keys
  /// in the store where its members meet. Of equal `store` they can; 0: not known.
  bool named_by_store{};
  std::uint64_t store{};
  bool inside{};  ///< Called inside calls of other groups, which tell all of it.
  std::optional<std::int64_t> timeout_ms{};  ///< Its own limit for a wait; none = not known.
  std::uint64_t issued{}, returned{},
      completed{};  ///< Collectives so far, dropped ones included (p2p apart).
  std::vector<std::uint64_t>
      last_signatures{};  ///< Of the last collectives, oldest first, at most 64.
  /// Digest chain: after each 1,024 collectives a hash of all signatures since the creation, so the
  /// first block in which two members differ is the first whose digest differs. `site_digests`: the
  /// same over call sites.
  std::vector<std::uint64_t> digests{}, site_digests{};
  std::uint64_t p2p_issued{}, p2p_returned{},
      p2p_completed{};  ///< Point-to-point operations so far.
};

/// The GPU of the first tensor on one that a process handed to a collective.
struct Device {
  std::int32_t index{};    ///< As the process counts them.
  std::int32_t visible{};  ///< How many it sees.
  std::string uuid{};      ///< 32 hex digits; of a part of a GPU (MIG) that of the part.
};

/// One recorded process: what its tap wrote.
struct Process {
  std::string file{};  ///< Name of its history file.
  std::string host{};
  std::int32_t pid{};
  std::uint64_t start_ticks{};  ///< Field 22 of /proc/PID/stat: with pid and boot id, an identity.
  std::optional<Rank> rank{};
  std::optional<Rank> beside{};  ///< It says that it is this rank, and another process is.
  std::int32_t world_size{};
  std::string torch_version{};
  std::uint64_t opened_ns{};
  std::vector<Group> groups{};
  std::vector<Creation> creations{};  ///< In the order in which they were begun.
  std::vector<SetAside> set_aside{};
  std::vector<Begun> begun{};
  std::vector<CallSite> sites{};          ///< [0] is empty: "not recorded".
  std::vector<Collective> collectives{};  ///< In record order.
  std::uint64_t dropped{};    ///< Records known to be lost (ring overwritten, no space).
  bool closed{};              ///< The closing record was found and nothing is missing before it.
  std::uint64_t closed_ns{};  ///< When it was written, on its way out; 0: not known.
  bool damaged{};             ///< Something in the file did not make sense and was left out.
  std::string boot_id{};      ///< Of the host; monotonic times compare only where it is equal.
  std::uint64_t pid_namespace{};
  std::int32_t parent_pid{};
  std::uint64_t wall_ns{};       ///< Wall clock at opened_ns.
  std::uint64_t capabilities{};  ///< history::Capability: what the tap could see.
  std::optional<Device> device{};
  std::shared_ptr<WatchedValues> watched{};  ///< Null: its values were not watched.

  /// "Complete for this group since its creation": absence of a record is absence of a call. Ring
  /// overflow does not end it (counts and digests go on); a gap, damage or a group met late does.
  [[nodiscard]] bool vouches(std::uint32_t group) const {
    return !damaged && group < groups.size() && groups[group].seen_from_creation;
  }
};

// --- What the supervisor recorded
// -------------------------------------------------------------------------

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
  /// ended_as_asked): "pid 4711 (torchrun)".
  std::string sender{};
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

/// A process changed CUDA_VISIBLE_DEVICES after CUDA had been initialised, and did not change it
/// back: as its shim tells.
struct LateDevices {
  std::uint64_t at_ns{};
  std::int32_t pid{};
  std::string at_start{}, in_force{}, set{};  ///< Quoted values; "unset".
  CallSite site{};                            ///< Empty where Python was not seen.
};

/// A tensor's values, widened to double (integers up to 2^53 stay exact).
struct Tensor {
  std::string dtype{};
  std::vector<std::int64_t> shape{};
  std::vector<double> values{};
};

struct Run {
  std::string directory{};  ///< Empty for a Run typed in memory.
  Plan plan{};
  std::vector<Process> processes{};

  std::vector<ProcessStart> starts{};
  std::vector<ProcessEnd> ends{};
  std::vector<Acted> acted{};
  std::vector<StateSample> states{};
  std::vector<StackSample> stacks{};
  std::vector<Request> requests{};
  std::vector<Observation> observations{};
  std::vector<Raised> raised{};
  std::vector<Mark> marks{};
  std::vector<Note> notes{};
  std::vector<Leftover> leftovers{};
  std::vector<Unwaited> unwaited{};
  std::vector<LauncherEnd> launcher_ends{};
  std::vector<Stranger> strangers{};
  std::vector<LateDevices> late_devices{};
  std::vector<Descriptors> descriptors{};

  std::vector<std::string>
      missing{};             ///< What the reader could not get, one sentence each (LS901).
  bool journal_complete{};   ///< The supervisor's journal has no gap and ends with its closing
                             ///< record.
  std::uint64_t ended_ns{};  ///< When that was written; 0: not known.
  bool live{};               ///< Still running: the end of everything is open.

  /// Reads an observed tensor; LS901 (kMalformedHistory) if the file does not match the digest. In
  /// tests a map.
  std::function<Result<Tensor>(const Observation&)> tensor{};

  [[nodiscard]] const Process* process_of(Rank rank) const {
    for (const Process& process : processes) {
      if (process.rank == rank)
        return &process;
    }
    return nullptr;
  }
};

}  // namespace lockstep
