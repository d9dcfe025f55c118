// Functions and loops that a list of calls can be walked through, made from where they came from.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "harness/exports/replay.h"

namespace lockstep::exports {

using Path = std::vector<std::string>;  ///< A step of each function, outermost first.

/// A call, the call of another function, or a loop around such.
struct Item {
  std::int32_t line{};
  std::string step{};      ///< Empty: a loop.
  std::string function{};  ///< That is called; empty: `op` is made.
  history::Op op{};
  bool runs_out{};
  bool ours{};  ///< A loop that no source is known to have.
  std::string variable{};
  std::vector<Item> body{};

  /// Of it and of all in it.
  [[nodiscard]] std::vector<std::string> steps() const;
};

struct Function {
  std::string name{};   ///< In the program.
  std::string about{};  ///< "Trainer.train, trainer.py".
  std::vector<Item> body{};
};

class Walk {
 public:
  explicit Walk(const Replay& replay);

  [[nodiscard]] const std::vector<Function>& functions() const { return functions_; }
  /// Of the call of that number of that rank.
  [[nodiscard]] const Path& path(std::size_t rank, std::size_t call) const {
    return paths_[rank][call];
  }

 private:
  struct Walker;

  Path add(const ReplayCall& call);
  std::size_t function_of(const std::string& file, const std::string& name);
  void insert(std::size_t function, const Place& place, const std::string& step,
              const std::string& callee, history::Op op);
  /// After which call the program would be at its end although more are to come.
  void mend(const std::vector<Path>& paths);
  void loop_over(const Path& earlier, const Path& later);
  std::size_t function_at(const Path& path, std::size_t depth) const;

  std::vector<Function> functions_{};
  std::map<std::pair<std::string, std::string>, std::size_t> index_{};
  std::map<std::string, std::size_t> named_{};
  std::vector<std::vector<Path>> paths_{};
};

}  // namespace lockstep::exports
