#include "checkers/watch/parted.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/model/call_site.h"

namespace lockstep::checkers {
namespace {

using history::WatchEntry;

constexpr std::size_t kSightsMin = 4;  // The first, and the next three.

bool moves_floats(const Collective& call) {
  switch (call.dtype) {
    case history::DType::kFloat16:
    case history::DType::kBFloat16:
    case history::DType::kFloat32:
    case history::DType::kFloat64:
      return true;
    default:
      return false;
  }
}

std::uint64_t extent(const Collective& call) { return std::max(call.numel_in, call.numel_out); }

/// Of an object that was pickled, such as a state_dict: two bytes for each number at least.
bool is_of_object(const CallSite& site) {
  return !site.frames.empty() && site.frames.front().function.find("_object") != std::string::npos;
}

/// Rounded to so few bits, packed as bytes, or pickled.
bool may_be_packed(const Process& process, const Collective& call, std::uint64_t numel) {
  switch (call.dtype) {
    case history::DType::kInt8:
    case history::DType::kInt16:
      return extent(call) >= numel;
    case history::DType::kUInt8:
      return call.site != 0 && is_of_object(process.sites[call.site])
                 ? extent(call) >= 2 * numel
                 : 8 * extent(call) >= numel;  // A bit for each sign.
    default:
      return false;
  }
}

/// After the last step it shows what the ranks hold, to compare or to keep it: what it gives is in
/// the place of nothing.
bool only_shows(const WatchedValues& watched, const Collective& call) {
  if (watched.last_step_ns == 0 || call.issued_ns <= watched.last_step_ns)
    return false;
  switch (call.op) {
    case history::Op::kAllGather:
    case history::Op::kAllGatherSingle:
    case history::Op::kAllGatherCoalesced:
    case history::Op::kGather:
      return true;
    default:
      return call.reduce_op == history::ReduceOp::kMin || call.reduce_op == history::ReduceOp::kMax;
  }
}

bool is_apart(const WatchedSight& sight) {
  return sight.all_have(history::kValueSeen) && !sight.values_equal();
}

}  // namespace

bool may_have_averaged(const WatchedSeries& series, As as, std::uint64_t since_ns,
                       std::uint64_t until_ns) {
  const std::uint64_t numel = series.tensor->numel;
  const auto may_be = [&](const Process& process, const Collective& call) {
    return call.issued_ns >= since_ns && call.issued_ns <= until_ns &&
           ((moves_floats(call) && extent(call) >= numel) ||
            (as == As::kAnything && may_be_packed(process, call, numel))) &&
           !only_shows(*process.watched, call) &&
           !(call.site != 0 && is_of_replica(process.sites[call.site]));
  };
  return std::any_of(
      series.group->members.begin(), series.group->members.end(), [&](const Member& member) {
        const auto& calls = member.process->collectives;
        return member.process->dropped > 0 ||
               std::any_of(calls.begin(), calls.end(),
                           [&](const Collective& call) { return may_be(*member.process, call); });
      });
}

namespace {

/// They are neither the same nor the same but for a factor, as clipping leaves them.
bool was_not_reduced(const WatchedSight& sight) {
  const WatchEntry& first = *sight.by_rank.begin()->second;
  return sight.all_have(history::kGradientSeen) && !sight.gradients_equal() &&
         std::any_of(sight.by_rank.begin(), sight.by_rank.end(), [&](const auto& held) {
           return held.second->gradient.digest != first.gradient.digest &&
                  !differ_by_factor(first.gradient, held.second->gradient);
         });
}

double apart_at(const WatchedSight& sight) {
  double largest = 0;
  for (const auto& [rank, entry] : sight.by_rank)
    largest = std::max(largest, distance(sight.by_rank.begin()->second->value, entry->value));
  return largest;
}

/// Of replicas that are apart although the same gradients are given to them.
void explain(Parting& parting) {
  const std::vector<WatchedSight>& sights = parting.series->sights;
  const WatchedSight& at = sights[parting.first];
  const WatchedSight* const before = parting.first == 0 ? nullptr : &sights[parting.first - 1];
  parting.code = Code::kParameterDiffers;
  parting.told_at = parting.first;
  if (before == nullptr && parting.series->tensor->late) {
    parting.code = Code::kInitialValue;
    parting.why = "nothing was sent when its module was wrapped (init_sync=False)";
  } else if (!at.settings_equal() || (before != nullptr && !before->settings_equal())) {
    parting.code = Code::kOptimizerStateDiffers;
    parting.why = "the settings of the optimizer differ, and the gradients do not";
    if (before != nullptr && !before->settings_equal())
      parting.told_at = parting.first - 1;
  } else if (at.other_optimizer) {
    parting.code = Code::kOptimizerStateDiffers;
    parting.why = "some ranks made another optimizer, whose state begins anew, and others did not";
  } else if (before == nullptr) {
    parting.why = "they differed when they were first watched";
  } else if (was_not_reduced(*before)) {
    parting.code = Code::kGradientNotSynchronised;
    parting.told_at = parting.first - 1;
    parting.why = fmt::format("the gradients given at step {} were not averaged", before->step);
  } else if (before->all_have(history::kGradientSeen) && !before->gradients_equal()) {
    parting.why = fmt::format("the gradients given at step {} differ by a factor", before->step);
  } else if (before->any_has(history::kStateSeen) &&
             !(before->all_have(history::kStateSeen) && before->states_equal())) {
    parting.code = Code::kOptimizerStateDiffers;
    parting.told_at = parting.first - 1;
    parting.why = before->all_have(history::kStateSeen)
                      ? "the state of the optimizer differed before, and the gradients did not"
                      : "the optimizer had a state on some ranks alone, and the gradients were "
                        "the same";
  } else {
    parting.why = fmt::format(
        "the gradients were the same on all ranks: something else changed it between the steps {} "
        "and {}",
        before->step, at.step);
  }
}

/// The reducer of the module, on all ranks.
bool reducer_ran(const WatchedSeries& series, std::uint64_t since_ns, std::uint64_t until_ns) {
  const auto is_of_reducer = [&](const Process& process, const Collective& call) {
    return call.issued_ns > since_ns && call.issued_ns < until_ns && call.site != 0 &&
           is_of_replica(process.sites[call.site]);
  };
  return std::all_of(series.group->members.begin(), series.group->members.end(),
                     [&](const Member& member) {
                       const auto& calls = member.process->collectives;
                       return std::any_of(calls.begin(), calls.end(), [&](const Collective& call) {
                         return call.group == member.group && is_of_reducer(*member.process, call);
                       });
                     });
}

/// Of what came to the module after it was wrapped, with values of each rank's own.
void explain_later_part(Parting& parting) {
  const WatchedSeries& series = *parting.series;
  if (series.tensor->at_start || series.tensor->reduced ||
      !std::all_of(series.sights.begin(), series.sights.end(), was_not_reduced) ||
      may_have_averaged(series, As::kAnything, /*since_ns=*/0))
    return;
  parting.code = Code::kOutsideBuckets;
  parting.why =
      "it was not there when its module was wrapped, and each rank has values of its own: right "
      "where that part is each rank's own";
}

/// Of replicas that are given different gradients and never meet again. Who averages the parameters
/// now and then may have done so since they were apart for the first time, and end in between.
void explain_unreduced(Parting& parting) {
  const std::vector<WatchedSight>& sights = parting.series->sights;
  if (parting.first == 0) {
    explain_later_part(parting);
    return;
  }
  const std::uint64_t apart_ns = std::find_if(sights.begin(), sights.end(), is_apart)->at_ns;
  const WatchedSight& before = sights[parting.first - 1];
  // Who had no gradient yet was given the first one in between.
  const bool had_none = !before.any_has(history::kGradientSeen);
  const auto later =
      sights.begin() + static_cast<std::ptrdiff_t>(parting.first) - (had_none ? 0 : 1);
  if (!std::all_of(later, sights.end(), was_not_reduced) ||
      std::any_of(later, sights.end(),
                  [](const WatchedSight& sight) { return sight.any_has(history::kHooked); }) ||
      may_have_averaged(*parting.series, As::kAnything, std::min(before.at_ns, apart_ns)))
    return;
  const bool reduced = parting.series->tensor->reduced;
  parting.code = reduced ? Code::kGradientNotSynchronised : Code::kOutsideBuckets;
  parting.told_at = had_none ? parting.first : parting.first - 1;
  parting.why = reduced && reducer_ran(*parting.series, before.at_ns, sights.back().at_ns)
                    ? "gradients were averaged meanwhile, and each rank adds something of its own "
                      "to them, or steps before they are"
                : reduced
                    ? "no gradient was averaged from there on, nor was the parameter"
                    : "it required no gradient, or was not there, when its module was wrapped";
}

/// Of a parameter that nobody says anything of: it was the same on all ranks from the beginning,
/// and so were the gradients given to it, and the program moved as many numbers meanwhile.
bool were_replicas(const WatchedSeries& series, std::size_t until) {
  const auto& sights = series.sights;
  return until > 0 &&
         std::all_of(sights.begin(), sights.begin() + static_cast<std::ptrdiff_t>(until),
                     [](const WatchedSight& sight) {
                       return sight.values_equal() && was_reduced(sight);
                     }) &&
         may_have_averaged(series, As::kFloats, sights.front().at_ns, sights[until].at_ns);
}

/// What the program does that makes ranks go on alone, by choice perhaps; empty where nothing does.
std::string_view asked_for(const Parting& parting, Reduced replica, std::size_t reduced) {
  const std::vector<WatchedSight>& sights = parting.series->sights;
  if (reduced > 0)
    return "";
  if (replica == Reduced::kBefore)
    return "another optimizer stepped its module before, by averaged gradients: right where each "
           "rank goes on alone from there";
  const auto from = sights.begin() + static_cast<std::ptrdiff_t>(parting.told_at);
  const bool alone = parting.code == Code::kGradientNotSynchronised && replica != Reduced::kYes &&
                     std::all_of(from, sights.end(), [](const WatchedSight& sight) {
                       return sight.all_have(history::kAlone);
                     });
  return alone && !reducer_ran(*parting.series, from->at_ns, sights.back().at_ns)
             ? "its forwards were within no_sync() from there on: right where each rank goes on "
               "alone"
             : "";
}

}  // namespace

bool is_of_replica(const CallSite& site) {
  if (!site.frames.empty() && site.frames.front().function == "_engine_run_backward")
    return true;  // Further in there is code of the program's: a hook, or a function of autograd's.
  return std::any_of(site.frames.begin(), site.frames.end(), [](const Frame& frame) {
    return std::string_view(frame.function).starts_with("DistributedDataParallel.") ||
           frame.file.find("/torch/distributed/algorithms/ddp_comm_hooks/") != std::string::npos;
  });
}

void add_site_of_module(const Member& member, const WatchedTensor& tensor, Finding& finding) {
  if (tensor.site == 0 || tensor.site >= member.process->sites.size())
    return;
  if (auto line = site_of(member.rank, member.process->sites[tensor.site].frames, "made"))
    finding.sites.push_back(std::move(*line));
}

bool was_reduced(const WatchedSight& sight) {
  return sight.all_have(history::kGradientSeen) && sight.gradients_equal() &&
         sight.by_rank.begin()->second->gradient.norm > 0;
}

std::optional<Parting> parting_of(const WatchedSeries& series, Reduced replica) {
  const std::vector<WatchedSight>& sights = series.sights;
  const auto met =
      std::find_if_not(sights.rbegin(), sights.rend(), is_apart);  // The last time that they did.
  const auto first = static_cast<std::size_t>(met.base() - sights.begin());
  if (first == sights.size() || series.tensor->ignored)
    return std::nullopt;
  Parting parting{.series = &series, .first = first, .told_at = first};
  const auto begin = sights.begin() + static_cast<std::ptrdiff_t>(first);
  const auto reduced = static_cast<std::size_t>(std::count_if(begin, sights.end(), was_reduced));
  const std::size_t seen = sights.size() - first;
  if (seen < kSightsMin)
    return reduced == seen && !series.tensor->loose ? std::optional(parting) : std::nullopt;
  for (auto at = begin; at != sights.end(); ++at)
    parting.apart = std::max(parting.apart, apart_at(*at));
  if (reduced + 1 >= kSightsMin && (!series.tensor->loose || were_replicas(series, first)))
    explain(parting);
  else if (!series.tensor->loose)
    explain_unreduced(parting);
  if (parting.code == Code::kNone)
    return std::nullopt;
  const std::string_view asked = asked_for(parting, replica, reduced);
  if (!asked.empty())
    parting.why = asked;
  const bool own_part = parting.code == Code::kOutsideBuckets && parting.first == 0;
  if (!asked.empty() || own_part ||
      parting.code == Code::kInitialValue)  // Who asks for that may mean it.
    parting.severity = Severity::kNote;
  else if (replica == Reduced::kNoMore && reduced == 0)
    parting.severity = Severity::kWarning;
  else if (parting.apart > tolerance_of(*series.tensor))
    parting.severity = replica == Reduced::kNever ? Severity::kWarning : Severity::kError;
  else  // Where the slice shows nothing a few elements are apart, and nobody knows by how much.
    parting.severity = parting.apart == 0 ? Severity::kWarning : Severity::kNote;
  return parting;
}

}  // namespace lockstep::checkers
