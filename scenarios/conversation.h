// A conversation with the hosts of one case: asks, waits, and writes what was asked, answered and
// observed into the journal. Scenarios talk through it and see neither processes nor descriptors.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/base/error.h"
#include "harness/history/journal.h"
#include "harness/history/run.h"
#include "harness/launch/host_job.h"
#include "harness/protocol/message.h"
#include "scenarios/scenario.h"

namespace lockstep {

/// Which observations a tensor file holds. Names like "forward_entry/0/buffer/x" carry their own
/// phase.
struct Observed {
  Role role{Role::kRank};
  std::optional<Rank> rank{};
  std::int64_t step{};
  std::string phase{};    ///< For names that carry none.
  std::string variant{};  ///< Reference only: a mutant's arithmetic.
  bool unsynced{};        ///< Buffers at forward entry are legally the rank's own: never compared.
};

class Conversation {
 public:
  struct Paths {
    std::filesystem::path run{};      ///< RUN of the case.
    std::filesystem::path scratch{};  ///< For the rendezvous file; fresh and empty.
  };

  Conversation(launch::HostJob& job, history::JournalWriter& journal, Plan& plan, const Case& cell,
               Paths paths, std::chrono::milliseconds request_limit);

  [[nodiscard]] const Case& cell() const { return cell_; }
  [[nodiscard]] std::int32_t world_size() const { return cell_.world_size; }
  [[nodiscard]] Plan& plan() { return plan_; }
  [[nodiscard]] const Paths& paths() const { return paths_; }

  using Answers = std::vector<protocol::Answer>;  ///< By rank.

  /// Asks every rank and waits for all. An error as soon as nobody can answer any more or it must
  /// stop: a rank ended or failed, a deadlock is proven, the deadline passed, lockstep was
  /// interrupted.
  Result<Answers> ask_ranks(const std::function<protocol::Json(Rank)>& request);
  /// The same of some ranks; answers come in their order.
  Result<Answers> ask_ranks(const RankSet& ranks,
                            const std::function<protocol::Json(Rank)>& request);
  /// Asks and does not wait. The rank is not asked again before answers_of() has waited for it.
  Result<void> tell(Rank rank, protocol::Json request);
  Result<Answers> answers_of(const RankSet& ranks);
  Result<protocol::Answer> ask_rank(Rank rank, protocol::Json request);
  Result<protocol::Answer> ask_reference(protocol::Json request);

  /// Notes who is whose child now, for what is left at the end.
  void look_at_family() { job_.look_at_family(); }

  /// Of everything that is asked from now on.
  void answers_within(std::chrono::milliseconds limit) { request_limit_ = limit; }

  /// A new file below RUN/tensors, "s2-rank1-grads".
  [[nodiscard]] std::filesystem::path tensor_path(const std::string& name) const;
  /// Writes one observation per tensor of `file`. Errors: kHost (LS904) if the host left no
  /// readable file.
  Result<void> observe(const std::filesystem::path& file, const Observed& what);
  /// What has been observed so far; for marks, which say what really happened.
  [[nodiscard]] const std::vector<Observation>& observations() const { return observations_; }
  Result<void> mark(const std::string& name);

  /// Says bye to every host and waits for all to end by themselves within the grace time.
  /// `whole`: their exits are the usual ones, LibTorch's teardown included, which takes its time.
  Result<void> bye(bool whole = false);

 private:
  struct Pending {
    Request request{};
    std::optional<protocol::Answer> answer{};
    std::string lost{};  ///< Why there will be no answer.
  };

  Result<std::size_t> send(std::size_t host, protocol::Json request);
  Result<void> wait_for(const std::vector<std::size_t>& hosts);
  void take_line(std::size_t host, const std::string& line);
  void lose(std::size_t host, const std::string& why);
  Result<protocol::Answer> ask_one(Role role, std::optional<Rank> rank, protocol::Json request);
  Result<Answers> collect(const std::vector<std::size_t>& hosts);
  [[nodiscard]] std::vector<std::size_t> hosts_of(const RankSet& ranks) const;

  launch::HostJob& job_;
  history::JournalWriter& journal_;
  Plan& plan_;
  const Case& cell_;
  Paths paths_;
  std::chrono::milliseconds request_limit_;
  std::map<std::size_t, Pending> pending_;  ///< By host.
  std::vector<Observation> observations_;
  std::uint64_t last_id_{};
};

}  // namespace lockstep
