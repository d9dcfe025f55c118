// A job on several hosts, each with its own lockstep and with a run directory beside those of the
// others: what each tells the others, and what the one that judges them all finds. The judge is the
// lockstep of the lowest rank that is heard of. It asks the others when all stand still; each looks
// at its ranks after it has read the question, and the judge reads the histories after all have
// answered. So nothing depends on clocks: what is proven was so after the question.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/history/heads.h"
#include "harness/history/journal.h"
#include "harness/history/run_directory.h"
#include "harness/session/clock.h"
#include "harness/session/live_job.h"
#include "harness/session/notices.h"

namespace lockstep::session {

class JobHosts {
 public:
  /// All must outlive it. What is not to be read by the judge alone goes to the journal.
  JobHosts(const history::RunDirectory& directory, const Clock& clock, const Notices& notices,
           history::JournalWriter& journal);

  /// When look() has something to do.
  [[nodiscard]] TimePoint due() const { return due_; }
  /// Reads what the others tell, answers what they ask, judges where this is the judge, and tells
  /// them of this host.
  void look(LiveJob& job);

  /// Why the job can never go on, as one of them has found; empty: nobody has.
  [[nodiscard]] std::string verdict() const;
  /// This lockstep says so as well, and has written down whatever follows: its ranks are ended.
  void agree(const std::string& verdict);
  /// All that are heard of do, or their part of the job is over.
  [[nodiscard]] bool all_agree() const;
  /// The ranks that others have.
  [[nodiscard]] RankSet elsewhere() const;
  /// "node2: ranks 2-3: in all_reduce world#12 at train.py:17 for 12 s", of the others.
  [[nodiscard]] std::vector<std::string> doing() const;

  /// The job is over here, and a rank of it failed: waits a moment to hear whether the others are
  /// there.
  void listen_once_more(LiveJob& job);
  /// The job is over here, or is ended: nothing more is told.
  void ends();
  /// The run of this host can be read. Where the job was ended on all of them, or a rank failed,
  /// waits a while for those of the others that are there, and gives all of them; else none.
  std::vector<std::string> all_closed();

 private:
  /// Of another host: when its heads last counted on, in looks of ours.
  struct Heard {
    std::uint64_t beat{};
    bool counts_on{};  ///< It did since it was found: it is no leftover of another job.
    Duration silent{};
    std::uint64_t at_ns{};
    bool told{};
  };

  void read_others();
  void listen(TimePoint now);
  void take_heads(const LiveJob& job);
  void answer(LiveJob& job);
  void publish();
  void note_what_does_not_arrive(const LiveJob& job);
  void tell_silence(const history::Heads& other, const Heard& heard);
  [[nodiscard]] bool is_silent(const history::Heads& other) const;
  [[nodiscard]] bool is_judge() const;
  void judge();
  void ask(bool again);
  void wait_before_asking();
  void tell_no_answer();
  [[nodiscard]] bool all_stand_still() const;
  [[nodiscard]] bool has_answered(const history::Heads& one) const;
  [[nodiscard]] bool all_have_answered() const;
  void weigh_answers();
  void tell_stall(const Run& whole);
  [[nodiscard]] std::optional<Run> all_together() const;

  const history::RunDirectory& directory_;
  const Clock& clock_;
  const Notices& notices_;
  history::JournalWriter& journal_;
  history::Heads own_{};
  std::vector<history::Heads> others_{};
  std::map<std::string, Heard> heard_{};  // By name.
  TimePoint due_{}, looked_{}, asked_at_{}, not_before_{};
  Duration pause_{};
  bool asked_{}, agreed_{}, published_{}, stall_told_{}, one_failed_{};
};

}  // namespace lockstep::session
