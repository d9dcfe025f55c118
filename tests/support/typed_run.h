// Runs typed as tables: row r is what rank r did. Everything is healthy unless a test says
// otherwise.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "harness/history/run.h"
#include "harness/verdict/codes.h"

namespace lockstep {
/// For GoogleTest.
inline void PrintTo(Code code, std::ostream* out) { *out << text_of(code); }
}  // namespace lockstep

namespace lockstep::testing {

inline constexpr std::uint64_t kMs = 1'000'000;
inline constexpr std::uint64_t kStart = 100'000 * kMs;  // When the first call is issued.
inline constexpr std::uint64_t kEvery = 10 * kMs;       // One call of a rank after the other.

/// One call of one rank; it returned and completed unless said otherwise.
struct Call {
  Collective record{};
  std::string group{"dp"};
  std::string file{};
  std::int32_t line{};
  std::vector<SourceLoop> loops{};

  Call at(std::string site_file, std::int32_t site_line) const;
  Call in_loop(std::int32_t loop_line, std::string variable = "") const;  ///< Outer loops first.
  Call in_for(std::int32_t loop_line,
              std::string variable = "") const;  ///< The same; nothing in its body leaves it.
  Call async() const;
  Call pending() const;  ///< Returned, and not completed: its thread waits in Work::wait.
  Call inside() const;   ///< Not returned either.
  Call failed() const;
  Call overlapped() const;
  Call unseen() const;  ///< Returned; its completion is never told.
  Call with(history::DType dtype) const;
  Call with(history::ReduceOp reduce_op) const;
  Call rooted(std::int32_t root) const;
  Call sizes(std::uint64_t in, std::uint64_t out) const;
  Call on_thread(std::uint32_t thread) const;
  Call limited(std::int64_t timeout_ms) const;
};

Call all_reduce(const std::string& group, std::uint64_t numel);
Call broadcast(const std::string& group, std::uint64_t numel, std::int32_t root = 0);
Call barrier(const std::string& group);
Call all_gather(const std::string& group, std::uint64_t in, std::uint64_t out);
Call call(history::Op op, const std::string& group, std::uint64_t in, std::uint64_t out);
Call send(const std::string& group, std::int32_t to, std::uint64_t numel, std::int32_t tag = 0);
Call recv(const std::string& group, std::int32_t from, std::uint64_t numel, std::int32_t tag = 0);
Call recv_any(const std::string& group, std::uint64_t numel, std::int32_t tag = 0);

using Row = std::vector<Call>;

/// All ranks are members of all groups, started before the first call, and exited with 0 after the
/// last.
Run make_run(const std::vector<Row>& rows);

/// When the last call was issued, had returned or was done.
std::uint64_t last_event(const Run& run);

/// Repeats a row, for loops.
Row times(std::size_t count, const Row& row);
Row operator+(Row a, const Row& b);

/// A group has only these members (all ranks by default).
void set_members(Run& run, const std::string& group, const std::vector<Rank>& ranks);

// --- A run that hangs
// -------------------------------------------------------------------------------------------

/// Every rank's main thread is asleep in two samples 300 ms apart, after the last call; those with
/// an open call are seen in Work::wait. Then we end them (TERM). Without `kill` the run is still
/// live.
void hang(Run& run, bool kill = true);
inline constexpr std::chrono::seconds kPatience{20};
/// After `hang`: it stood still for `patience`, then somebody ended it.
void interrupt(Run& run, std::chrono::milliseconds patience = kPatience);
/// When the samples of `hang` are taken.
std::uint64_t stall_ns(const Run& run);

ThreadState& thread_of(StateSample& sample, std::int32_t tid);
StackSample stack_of(const Run& run, Rank rank, std::vector<std::string> functions);
Process& process_of(Run& run, Rank rank);

/// How a rank ended, replacing the clean end.
void ends_with_status(Run& run, Rank rank, std::int32_t status, std::uint64_t at_ns);
/// It ends with status 1, and printed this before.
void raises(Run& run, Rank rank, const std::string& text, std::uint64_t at_ns);
void ends_with_signal(Run& run, Rank rank, std::int32_t signal, std::uint64_t at_ns);

/// A launcher started the ranks twice: the first attempt, before everything, ended with status 1.
void add_failed_attempt(Run& run);

// --- Conversations and values
// ------------------------------------------------------------------------------------

Request& ask(Run& run, Rank rank, const std::string& message, std::uint64_t at_ns,
             std::optional<std::uint64_t> answered_ns);
/// `hello` before everything, and after everything `bye`, to each rank; answered.
void converse(Run& run);

/// Values live in the run's own map; the digest is of the values.
void observe(Run& run, std::optional<Rank> rank, const std::string& name, std::int64_t step,
             const std::string& phase, const std::vector<double>& values,
             const std::string& variant = "", Role role = Role::kRank,
             const std::string& dtype = "F64", std::vector<std::int64_t> shape = {});
void reference(Run& run, const std::string& name, std::int64_t step,
               const std::vector<double>& values, const std::string& variant = "",
               std::optional<Rank> rank = std::nullopt, const std::string& dtype = "F64");

}  // namespace lockstep::testing
