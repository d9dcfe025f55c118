#include "checkers/values/bucket_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "harness/model/coverage.h"
#include "harness/model/observed_values.h"

namespace lockstep::checkers {
namespace {

struct Part {
  std::size_t parameter{};  ///< Index in the plan.
  std::int64_t bytes{}, type{};
};
using Buckets = std::map<std::int64_t, std::vector<Part>>;  ///< In the order of their reduction.

/// As hosts tell it: rows of bucket, parameter, bytes and type, as the buckets are filled.
Buckets buckets_in(const std::vector<double>& values) {
  Buckets buckets;
  for (std::size_t i = 0; i + 3 < values.size(); i += 4)
    buckets[static_cast<std::int64_t>(values[i])].push_back(
        {static_cast<std::size_t>(values[i + 1]), static_cast<std::int64_t>(values[i + 2]),
         static_cast<std::int64_t>(values[i + 3])});
  return buckets;
}

std::optional<std::int64_t> bytes_of(const Run& run, const char* option) {
  const auto at = run.plan.options.find(option);
  std::int64_t bytes = 0;
  if (at == run.plan.options.end() ||
      std::from_chars(at->second.data(), at->second.data() + at->second.size(), bytes).ec !=
          std::errc())
    return std::nullopt;
  return bytes;
}

class Rule {
 public:
  Rule(const Run& run, std::int64_t cap)
      : run_(run), cap_(cap), first_(bytes_of(run, "first_bucket_bytes").value_or(cap)) {}

  /// Empty: nothing. `filled`: the limits hold already.
  [[nodiscard]] std::string wrong(const Buckets& buckets, bool filled) const {
    std::map<std::size_t, int> times;
    std::set<std::int64_t> not_full;
    std::int64_t limit = first_;
    for (const auto& [number, parts] : buckets) {
      std::int64_t bytes = 0;
      for (const Part& part : parts) {
        ++times[part.parameter];
        bytes += part.bytes;
        if (part.type != parts.front().type)
          return fmt::format("bucket {} holds parameters of two types", number);
      }
      if (filled && bytes - parts.back().bytes >= limit)
        return fmt::format("bucket {} was full at {} of {} bytes, and {} was added to it", number,
                           bytes - parts.back().bytes, limit, name_of(parts.back().parameter));
      if (filled && bytes < limit && !not_full.insert(parts.front().type).second)
        return fmt::format(
            "bucket {} was closed at {} of {} bytes, and is not the last of its type", number,
            bytes, limit);
      limit = cap_;
    }
    if (!filled && buckets.size() > 1 && holds(buckets.begin()->second, 0))
      return fmt::format("bucket {} holds {} before the first backward, whose gradient comes last",
                         buckets.begin()->first, name_of(0));
    for (std::size_t i = 0; i < run_.plan.parameters.size(); ++i) {
      if (times[i] != 1)
        return fmt::format("{} is in {} buckets", name_of(i), times[i]);
    }
    return "";
  }

  [[nodiscard]] std::int64_t first() const { return first_; }

 private:
  static bool holds(const std::vector<Part>& parts, std::size_t parameter) {
    return std::any_of(parts.begin(), parts.end(),
                       [&](const Part& part) { return part.parameter == parameter; });
  }
  [[nodiscard]] std::string name_of(std::size_t parameter) const {
    return parameter < run_.plan.parameters.size() ? run_.plan.parameters[parameter].first : "none";
  }

  const Run& run_;
  std::int64_t cap_, first_;
};

}  // namespace

Verdict BucketLayout::check(const Job& job) const {
  const Run& run = job.run();
  Verdict verdict{.name = std::string(name())};
  const auto cap = bytes_of(run, "bucket_cap_bytes");
  if (!cap)
    return verdict.skip("no limit of a bucket was asked for");
  const Rule rule(run, *cap);
  std::map<std::pair<std::int64_t, Rank>, const Observation*> last;  // Of a step's batches.
  for (const Observation& seen : run.observations) {
    if (seen.name == "buckets" && seen.role == Role::kRank && seen.rank)
      last[{seen.step, *seen.rank}] = &seen;
  }
  if (last.empty())
    return verdict.skip("no rank tells its buckets");
  std::map<std::string, std::pair<const Observation*, RankSet>> wrong;
  for (const auto& [at, seen] : last) {
    const auto rows = values_of(run, *seen);
    if (!rows)
      return verdict.because(incomplete(rows.error().what));
    const Buckets buckets = buckets_in(rows->values);
    verdict.examined["buckets"] += buckets.size();
    // Before the first backward nobody knows in which order gradients come.
    if (const std::string what = rule.wrong(buckets, at.first > 0); !what.empty())
      wrong.try_emplace(what, seen, RankSet{}).first->second.second.insert(at.second);
  }
  verdict.outcome = Outcome::kPass;
  if (wrong.empty())
    return verdict;
  const auto& [what, where] = *wrong.begin();
  Finding finding;
  finding.code = Code::kBucketLayout;
  finding.step = where.first->step;
  finding.at_ns = where.first->at_ns;
  finding.confidence = Confidence::kCertain;
  finding.affected = where.second;
  finding.headline = what;
  finding.tell(EvidenceKind::kRule, {},
               "asked for: {} bytes in the first bucket, {} in each other one", rule.first(), *cap);
  verdict.fail(std::move(finding));
  return verdict;
}

}  // namespace lockstep::checkers
