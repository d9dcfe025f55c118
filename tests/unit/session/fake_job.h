// A job whose story is written before it begins, and the clock that only it turns.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/session/live_job.h"
#include "harness/session/watch.h"

namespace lockstep::testing {

using std::chrono::milliseconds;
using std::chrono::seconds;

class FakeJob final : public session::LiveJob {
 public:
  using Kind = launch::RunEvent::Kind;

  /// `history`: what is read of it; the job begins at `begin_ns` of that, with a move.
  FakeJob(Run history, std::uint64_t begin_ns)
      : history_(std::move(history)),
        begun_(std::chrono::nanoseconds(begin_ns)),
        now_(begun_),
        last_move_(begun_) {}

  [[nodiscard]] const session::Clock& clock() const { return clock_; }
  /// Since its begin.
  [[nodiscard]] milliseconds elapsed() const {
    return std::chrono::duration_cast<milliseconds>(now_ - begun_);
  }

  /// Times are since its begin.
  void moves_at(milliseconds at) {
    plan(at, [this] {
      last_move_ = now_;
      return std::nullopt;
    });
  }
  void has_event(milliseconds at, Kind kind, const std::string& text = "",
                 std::uint64_t since_ns = 0) {
    plan(at, [=] { return launch::RunEvent{kind, text, since_ns}; });
  }
  void is_over_at(milliseconds at) { has_event(at, Kind::kOver); }
  /// As the launcher does of ranks that stand still.
  void asks_whether_it_hangs(milliseconds at, const session::Watch& watch) {
    plan(at, [this, &watch]() -> std::optional<launch::RunEvent> {
      std::optional<std::string> why = watch.certain_hang(history_);
      if (!why)
        return std::nullopt;
      return launch::RunEvent{Kind::kStop, std::move(*why), 0};
    });
  }
  void history_changes(milliseconds at, const std::function<void(Run&)>& change) {
    plan(at, [this, change] {
      change(history_);
      return std::nullopt;
    });
  }
  /// A look shows that a rank had moved.
  void moves_when_looked_at() { moves_when_looked_at_ = true; }

  launch::RunEvent wait(session::TimePoint deadline) override {
    while (!story_.empty() && story_.begin()->first <= deadline) {
      now_ = std::max(now_, story_.begin()->first);
      const auto happens = std::move(story_.begin()->second);
      story_.erase(story_.begin());
      if (std::optional<launch::RunEvent> event = happens())
        return std::move(*event);
    }
    if (deadline == session::TimePoint::max() || story_.empty()) {
      ADD_FAILURE() << "the story has no end";
      return {Kind::kOver, "", 0};
    }
    now_ = std::max(now_, deadline);
    return {Kind::kDeadline, "", 0};
  }
  void sample(bool before_the_end) override {
    (before_the_end ? looks_before_the_end : looks).push_back(elapsed());
    if (moves_when_looked_at_)
      last_move_ = now_;
  }
  void look_again() override { looks_again.push_back(elapsed()); }
  [[nodiscard]] session::TimePoint last_move() const override { return last_move_; }
  void shares_a_rank() { shares_a_rank_ = true; }
  [[nodiscard]] bool share_a_rank() const override { return shares_a_rank_; }
  /// One of its own launcher's, who then waits for another one, or may do something about it.
  void loses_a_child(bool others_wait) {
    lost_a_child_ = true;
    others_wait_ = others_wait;
  }
  [[nodiscard]] bool lost_a_child() const override { return lost_a_child_; }
  [[nodiscard]] bool others_wait() const override { return others_wait_; }
  [[nodiscard]] RankSet living() const override { return RankSet::all(history_.plan.world_size); }
  [[nodiscard]] const Run& history() const override { return history_; }
  void read_on() override {}
  [[nodiscard]] std::int32_t world_size() const override { return history_.plan.world_size; }
  launch::EndReport end(const std::string& reason) override {
    ended_because = reason;
    return left;
  }
  launch::EndReport clear() override { return left; }

  std::vector<milliseconds> looks{}, looks_again{}, looks_before_the_end{};
  launch::EndReport left{};
  std::string ended_because{};

 private:
  using Happens = std::function<std::optional<launch::RunEvent>()>;
  void plan(milliseconds at, Happens happens) { story_.emplace(begun_ + at, std::move(happens)); }

  Run history_;
  session::TimePoint begun_, now_, last_move_;
  session::Clock clock_{[this] { return now_; }};
  std::multimap<session::TimePoint, Happens> story_{};
  bool moves_when_looked_at_{}, shares_a_rank_{}, lost_a_child_{}, others_wait_{};
};

/// A watch of such a job, and what it said and wrote down.
class Watched {
 public:
  Watched(Run history, std::uint64_t begin_ns, const session::WatchOptions& options = {})
      : job(std::move(history), begin_ns),
        notices(job.clock(), [this](std::string_view text) { said.emplace_back(text); }),
        watch(options, job.clock(), notices, [this](const Acted& act) { acts.push_back(act); }) {}

  std::string follow() { return watch.follow(job); }
  /// The notices, without the lines that belong to them.
  [[nodiscard]] std::vector<std::string> told() const {
    std::vector<std::string> told;
    for (const std::string& line : said) {
      if (line.find('[') != std::string::npos)
        told.push_back(line.substr(line.find_first_not_of(' '),
                                   line.find_last_not_of('\n') - line.find_first_not_of(' ') + 1));
    }
    return told;
  }

  FakeJob job;
  std::vector<std::string> said{};
  std::vector<Acted> acts{};
  session::Notices notices;
  session::Watch watch;
};

}  // namespace lockstep::testing
