// Verdicts and findings.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/base/rank_set.h"
#include "harness/history/run.h"
#include "harness/verdict/codes.h"

namespace lockstep {

/// Forgetting to decide is not passing: the default is undecided.
enum class Outcome : std::uint8_t { kUndecided, kPass, kFail, kSkipped };
enum class Severity : std::uint8_t { kError, kWarning, kNote };
/// What the evidence forces (certain), suggests (likely), or leaves open (unknown).
enum class Confidence : std::uint8_t { kUnknown, kLikely, kCertain };

std::string_view name_of(Outcome outcome);
std::string_view name_of(Severity severity);
std::string_view name_of(Confidence confidence);

/// "rank 3", "ranks 0-2,4".
std::string words(const RankSet& ranks);

/// Of one rank, or of none.
RankSet as_set(const std::optional<Rank>& rank);

/// A place in the user's code, and the part it plays.
struct SiteRef {
  Rank rank{};
  std::string role{};  ///< "culprit", "peer", "raised".
  std::string file{};
  std::int32_t line{};
  std::string function{};
};

/// " at ddp.cc:118", or empty.
std::string at_site(const std::optional<SiteRef>& site);

/// A call by its place in the order of its group.
struct CallRef {
  std::string group{};
  std::uint64_t seq{};
};

/// What was measured.
enum class EvidenceKind : std::uint8_t {
  kCall,       ///< What ranks called, and from where, or that they did not.
  kWait,       ///< What a rank waits for, or is held by, and for how long.
  kEnd,        ///< How a process ended, and by whom.
  kException,  ///< What was raised, refused or printed.
  kProcess,    ///< A process or a thread: which one it is, who started it, what it does.
  kGroup,      ///< Who belongs to a group.
  kResource,   ///< Files, shared memory, descriptors, GPUs.
  kValue,      ///< Numbers: of tensors, gradients, losses.
  kSample,     ///< What samplers and loaders gave.
  kRule,       ///< Nothing measured: what is declared, or how PyTorch works.
  kFinding,    ///< Another finding, of the same divergence or after it.
};

std::string_view name_of(EvidenceKind kind);

/// One line of what was measured: what, of which ranks, about which call, at which line; its words
/// come last.
struct Evidence {
  EvidenceKind kind{};
  RankSet ranks{};
  std::optional<CallRef> call{};
  std::optional<SiteRef> site{};
  std::string text{};

  Evidence& about(std::optional<CallRef> place) {
    call = std::move(place);
    return *this;
  }
  /// Its words end with the line, where it is known.
  Evidence& at(std::optional<SiteRef> line) {
    text += at_site(line);
    site = std::move(line);
    return *this;
  }
};

template <class... Args>
Evidence evidence_of(EvidenceKind kind, const RankSet& ranks, fmt::format_string<Args...> format,
                     Args&&... args) {
  Evidence evidence{.kind = kind, .ranks = ranks};
  evidence.text = fmt::format(format, std::forward<Args>(args)...);
  return evidence;
}

std::vector<std::string> texts_of(const std::vector<Evidence>& evidence);

/// One thing that is wrong. `headline` alone must be enough if only one line can be shown.
struct Finding {
  Code code{};
  std::string world{};       ///< "phase 1 of 2"; empty where the run has one only.
  std::vector<Code> also{};  ///< Other codes that describe the same divergence less well.
  Severity severity{Severity::kError};
  std::string headline{};
  RankSet culprits{};  ///< Only ranks that the evidence convicts; empty otherwise.
  RankSet affected{};
  std::string group{};
  std::string op{};
  std::optional<std::uint64_t> seq{};
  std::optional<std::int64_t> step{};
  std::vector<std::string> names{};  ///< Tensors, parameters, buffers.
  std::vector<SiteRef> sites{};
  std::vector<Evidence> evidence{};  ///< Measured, one line each.
  std::string cause{};               ///< Inferred.
  Confidence confidence{Confidence::kUnknown};
  std::uint64_t consequences{};  ///< Later divergences and ends that follow from this one: counted,
                                 ///< not shown.
  std::vector<std::string> ruled_out{};
  std::vector<std::string> unseen{};
  std::string help{};
  std::uint64_t at_ns{};  ///< When it happened, for "first divergence"; not reported.

  /// Where it is known.
  void add(const std::optional<SiteRef>& site) {
    if (site)
      sites.push_back(*site);
  }

  template <class... Args>
  Evidence& tell(EvidenceKind kind, const RankSet& ranks, fmt::format_string<Args...> format,
                 Args&&... args) {
    return evidence.emplace_back(evidence_of(kind, ranks, format, std::forward<Args>(args)...));
  }
  /// "ranks 0,2: ...".
  template <class... Args>
  Evidence& tell_of(EvidenceKind kind, const RankSet& ranks, fmt::format_string<Args...> format,
                    Args&&... args) {
    Evidence& line = tell(kind, ranks, format, std::forward<Args>(args)...);
    line.text.insert(0, words(ranks) + ": ");
    return line;
  }
};

/// A number a check is based on.
struct Measure {
  std::string name{};
  double value{};
  double tolerance{};
  std::string rule{};  ///< "exact", "double", "precision".
  std::string unit{};
  std::optional<double> power{};  ///< Smallest effect of a mutant's arithmetic over the tolerance.
};

/// Why nothing is decided. With a code where evidence is lacking: that is of more weight than that
/// there was nothing to look at.
struct Reason {
  std::string text{};           ///< "LS901: group dp was met late on rank 1".
  std::optional<Code> lacks{};  ///< LS901.
};

struct Verdict {
  std::string name{};  ///< Of the checker: "collective-order".
  Outcome outcome{Outcome::kUndecided};
  std::string reason{};         ///< Why undecided or skipped.
  std::optional<Code> lacks{};  ///< Of the family kRecord: the reason is evidence that is lacking.
  std::map<std::string, std::uint64_t> examined{};
  std::vector<Finding> findings{};
  std::vector<Measure> measures{};

  Verdict& because(Reason why) {
    reason = std::move(why.text);
    lacks = why.lacks;
    return *this;
  }
  Verdict& skip(std::string why) {
    outcome = Outcome::kSkipped;
    reason = std::move(why);
    return *this;
  }
  Verdict& fail(Finding finding) {
    outcome = Outcome::kFail;
    findings.push_back(std::move(finding));
    return *this;
  }
};

}  // namespace lockstep
