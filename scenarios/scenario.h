// A scenario asks one question of an implementation: it is a conversation with rank hosts, and its
// cells say where the question is asked. It never sees torch; what was wrong is for the checkers to
// say.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fixtures/mutants/table.h"
#include "harness/base/error.h"
#include "harness/base/rank_set.h"
#include "harness/verdict/codes.h"

namespace lockstep {

class Conversation;
struct Subject;

/// One cell: a scenario, an implementation (or a mutant of it), a world size, a dtype and options.
struct Case {
  std::string id{};  ///< "buffer-broadcast/ddp/w3/float64/broadcast=on".
  std::string scenario{};
  std::string implementation{};
  std::int32_t world_size{};
  std::string dtype{"float64"};
  std::string device{"cpu"};
  std::uint64_t seed{1};
  std::map<std::string, std::string> options{};
  std::vector<std::string> expected_marks{};   ///< What must really have happened.
  std::vector<std::string> required_checks{};  ///< Checkers that must decide.
  bool required{true};                         ///< Undecided counts for the exit status.
  std::string expected_site{};   ///< "file:line" that a mutant's finding must name; empty: none.
  std::string not_applicable{};  ///< Why the question is not asked of it; such a case is not run.
  std::string named_by{};        ///< Words of the command that name the subject; empty: ours.
  bool of_subject{};             ///< Of an implementation that is none of this repository's.
  std::string kind{};            ///< Of a subject: "ddp", "sampler", ...
  bool one_seed{};               ///< A sampler that is given no seed.
  std::string not_declared{};    ///< What the subject does not say of itself; then it is not run,
  bool tried{};                  ///< unless it is tried: what is found does not count against it.
  const mutants::Mutant* mutant{};  ///< Null for the implementation itself.

  [[nodiscard]] std::string option(const std::string& name,
                                   const std::string& otherwise = "") const {
    const auto at = options.find(name);
    return at == options.end() ? otherwise : at->second;
  }
};

/// What must be found in a case that is unhealthy on purpose: exactly this, and nothing else.
struct Expectation {
  Code code{};
  RankSet culprits{};
  bool or_none{};        ///< It is right to name none of them, too.
  std::string marker{};  ///< Of the line that a site must name (Case::expected_site); empty: none.
  std::string tensor{};  ///< That must be named; "*": any; empty: none.
};

/// Of a mutant, or of a fault that the case asks for; none for a healthy case.
std::optional<Expectation> expectation_of(const Case& cell);

class Scenario {
 public:
  virtual ~Scenario() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual std::string_view question() const = 0;
  /// Every cell of the unmutated implementations.
  [[nodiscard]] virtual std::vector<Case> cells() const = 0;
  /// Those of an implementation that a user has named: what it does not declare is not asked.
  [[nodiscard]] virtual std::vector<Case> cells(const Subject& subject) const;
  /// Implementations of which the question cannot be asked, and why.
  [[nodiscard]] virtual std::vector<std::pair<std::string, std::string>> not_applicable() const {
    return {};
  }
  /// Talks until the question is answered. An error means that it ended early; the history says
  /// why.
  [[nodiscard]] virtual Result<void> converse(Conversation& conversation,
                                              const Case& cell) const = 0;
};

/// All scenarios, in the order in which they run.
const std::vector<std::unique_ptr<Scenario>>& all_scenarios();

/// "scenario/implementation/wN/dtype/key=value,..." from the parts of `cell`.
std::string case_id(const Case& cell);

/// The designated cell of every mutant of `scenario`, rank, step and bucket drawn from `seed`.
std::vector<Case> mutant_cases(const Scenario& scenario, std::uint64_t seed);

/// Of a subject: mistakes in what it declares, that its host makes. They prove that the checks find
/// them there; one that is not caught does not count against the subject.
std::vector<Case> mutant_cases(const Subject& subject, std::uint64_t seed);

}  // namespace lockstep
