#include "tests/support/metamorphic.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <random>

#include "checkers/judge.h"

namespace lockstep::testing {
namespace {

/// One thing that can be missing. Applied to a copy of the run.
struct Deletion {
  std::string what{};
  std::function<void(Run&)> apply{};
};

template <class T>
void add_records(std::vector<Deletion>& all, std::vector<T> Run::*list, const Run& run,
                 const char* name) {
  for (std::size_t i = 0; i < (run.*list).size(); ++i) {
    all.push_back({fmt::format("{} {}", name, i), [list, i](Run& copy) {
                     // A marker rather than an erasure, so that several deletions do not shift each
                     // other.
                     copy.journal_complete = false;
                     (copy.*list)[i].at_ns = ~std::uint64_t{0};
                   }});
  }
}

template <class T>
void sweep(std::vector<T>& list) {
  std::erase_if(list, [](const T& record) { return record.at_ns == ~std::uint64_t{0}; });
}

/// Takes out what was marked.
void sweep(Run& run) {
  sweep(run.starts);
  sweep(run.ends);
  sweep(run.acted);
  sweep(run.states);
  sweep(run.stacks);
  sweep(run.requests);
  sweep(run.observations);
  sweep(run.raised);
  sweep(run.marks);
  std::erase_if(run.processes, [](const Process& process) { return process.file == "deleted"; });
  for (Process& process : run.processes)
    std::erase_if(process.collectives,
                  [](const Collective& c) { return c.issued_ns == ~std::uint64_t{0}; });
}

std::vector<Deletion> deletions_of(const Run& run) {
  std::vector<Deletion> all;
  for (std::size_t p = 0; p < run.processes.size(); ++p) {
    all.push_back(
        {fmt::format("file {}", p), [p](Run& copy) { copy.processes[p].file = "deleted"; }});
    const std::size_t count = run.processes[p].collectives.size();
    for (std::size_t i = 0; i < count; ++i) {
      all.push_back({fmt::format("record {} of file {}", i, p), [p, i](Run& copy) {
                       copy.processes[p].collectives[i].issued_ns = ~std::uint64_t{0};
                       copy.processes[p].closed = false;
                     }});
      all.push_back({fmt::format("records from {} on of file {}", i, p), [p, i](Run& copy) {
                       for (std::size_t n = i; n < copy.processes[p].collectives.size(); ++n)
                         copy.processes[p].collectives[n].issued_ns = ~std::uint64_t{0};
                       copy.processes[p].closed = false;
                     }});
    }
  }
  add_records(all, &Run::starts, run, "start");
  add_records(all, &Run::ends, run, "end");
  add_records(all, &Run::acted, run, "act");
  add_records(all, &Run::states, run, "state");
  add_records(all, &Run::stacks, run, "stack");
  add_records(all, &Run::requests, run, "request");
  add_records(all, &Run::observations, run, "observation");
  add_records(all, &Run::raised, run, "exception");
  add_records(all, &Run::marks, run, "mark");
  return all;
}

/// The journal up to an instant: everything the supervisor wrote later is gone.
std::vector<Deletion> journal_suffixes(const Run& run) {
  std::vector<std::uint64_t> times;
  times.reserve(run.ends.size() + run.requests.size() + run.observations.size() + run.acted.size());
  for (const ProcessEnd& end : run.ends)
    times.push_back(end.at_ns);
  for (const Request& request : run.requests)
    times.push_back(request.at_ns);
  for (const Observation& seen : run.observations)
    times.push_back(seen.at_ns);
  for (const Acted& act : run.acted)
    times.push_back(act.at_ns);
  std::sort(times.begin(), times.end());
  times.erase(std::unique(times.begin(), times.end()), times.end());
  std::vector<Deletion> all;
  for (const std::uint64_t from : times) {
    all.push_back({fmt::format("the journal from {} on", from), [from](Run& copy) {
                     const auto later = [from](const auto& record) { return record.at_ns >= from; };
                     std::erase_if(copy.starts, later);
                     std::erase_if(copy.ends, later);
                     std::erase_if(copy.acted, later);
                     std::erase_if(copy.states, later);
                     std::erase_if(copy.stacks, later);
                     std::erase_if(copy.requests, later);
                     std::erase_if(copy.observations, later);
                     std::erase_if(copy.raised, later);
                     std::erase_if(copy.marks, later);
                     for (Request& request : copy.requests) {
                       if (request.answered_ns.value_or(0) >= from) {
                         request.answered_ns.reset();
                         request.outcome.clear();
                       }
                     }
                     copy.journal_complete = false;
                   }});
  }
  return all;
}

RankSet culprits_of(const std::vector<Finding>& findings) {
  RankSet culprits;
  for (const Finding& finding : findings) {
    for (const Rank rank : finding.culprits)
      culprits.insert(rank);
  }
  return culprits;
}

class Law {
 public:
  explicit Law(const Run& run)
      : run_(run), checkers_(checkers::all_checkers()), before_(checkers::judge(run, checkers_)) {}

  void check(const std::string& what, const std::function<void(Run&)>& apply) {
    Run copy = run_;
    apply(copy);
    sweep(copy);
    const checkers::Judgement after = checkers::judge(copy, checkers_);
    for (std::size_t i = 0; i < after.verdicts.size(); ++i) {
      if (before_.verdicts[i].outcome == Outcome::kPass &&
          after.verdicts[i].outcome == Outcome::kFail)
        violations_.push_back(fmt::format("without {}: {} turns from pass to fail ({})", what,
                                          after.verdicts[i].name,
                                          after.verdicts[i].findings.front().headline));
    }
    if (before_.outcome == Outcome::kPass && after.outcome == Outcome::kFail)
      violations_.push_back(fmt::format("without {}: pass turns into fail", what));
    const RankSet moved = culprits_of(after.findings).minus(culprits_of(before_.findings));
    if (!moved.empty())
      violations_.push_back(
          fmt::format("without {}: the blame moves to {} ({}; before: {})", what, moved.to_string(),
                      after.findings.front().headline,
                      before_.findings.empty() ? "nothing" : before_.findings.front().headline));
  }

  std::vector<std::string> take() { return std::move(violations_); }

 private:
  const Run& run_;
  checkers::Checkers checkers_;
  checkers::Judgement before_;
  std::vector<std::string> violations_{};
};

}  // namespace

std::vector<std::string> law_violations(const Run& run, const LawOptions& options) {
  Law law(run);
  const std::vector<Deletion> all = deletions_of(run);
  const std::size_t stride =
      std::max<std::size_t>(1, all.size() / std::max<std::size_t>(1, options.single_max));
  for (std::size_t i = 0; i < all.size(); i += stride)
    law.check(all[i].what, all[i].apply);
  for (const Deletion& deletion : journal_suffixes(run))
    law.check(deletion.what, deletion.apply);
  std::mt19937_64 random(options.seed);
  for (std::size_t n = 0; n < options.subsets && !all.empty(); ++n) {
    const std::size_t count = 1 + random() % std::min<std::size_t>(all.size(), 8);
    std::vector<const Deletion*> chosen;
    std::string what;
    for (std::size_t i = 0; i < count; ++i) {
      chosen.push_back(&all[random() % all.size()]);
      what += (i == 0 ? "" : " and ") + chosen.back()->what;
    }
    law.check(what, [&](Run& copy) {
      for (const Deletion* deletion : chosen)
        deletion->apply(copy);
    });
  }
  return law.take();
}

}  // namespace lockstep::testing
