#include "harness/diagnose/standing.h"

#include <fmt/format.h>

#include <algorithm>

#include "checkers/exit/stuck_at_exit.h"
#include "harness/model/call_site.h"
#include "harness/model/stack_patterns.h"

namespace lockstep::diagnose {
namespace {

/// Its main thread at the first and at the last reading of states.
struct Readings {
  const ThreadState *first{}, *last{};
  const StateSample* state{};
  std::uint64_t apart_ns{};
  [[nodiscard]] bool slept() const {
    return last != nullptr && last->state == 'S' &&
           first->context_switches == last->context_switches;
  }
  [[nodiscard]] bool computed() const {
    return last != nullptr && last->cpu_ns - first->cpu_ns >= apart_ns / 4;
  }
};

Readings readings_of(const Run& run, std::int32_t pid) {
  Readings readings;
  std::uint64_t first_ns = 0;
  for (const StateSample& state : run.states) {
    const ThreadState* const main = state.pid == pid ? thread_in(state, pid) : nullptr;
    if (main == nullptr)
      continue;
    if (readings.first == nullptr) {
      readings.first = main;
      first_ns = state.at_ns;
    }
    readings.last = main;
    readings.state = &state;
    readings.apart_ns = state.at_ns - first_ns;
  }
  return readings;
}

/// DDP's own code, which is Python around C++ that has none.
std::string ddp_function(const StackSample& stack) {
  for (const Frame& frame : stack.frames) {
    if (frame.module.find("/torch/nn/parallel/distributed.py") != std::string::npos)
      return frame.function.substr(frame.function.rfind('.') + 1);
  }
  return "";
}

/// A wait that native frames alone show: which call that is in.
std::string call_by_native_frames(const StackSample& stack, const std::string& in_flight) {
  if (any(stack.frames, Sign::kReducerEnd))
    return "the reduction of DDP in backward";
  if (const std::string function = ddp_function(stack); !function.empty())
    return fmt::format("DDP's {}", function);
  const std::string what = in_flight.empty() ? "a collective" : fmt::format("Gloo's {}", in_flight);
  return any(stack.frames, Sign::kBackwardOfPython) ? what + " in backward" : "wait for " + what;
}

class Describer {
 public:
  Describer(const Look& look, const Looked& one)
      : look_(look),
        one_(one),
        stack_(main_stack_of(look.run, one.pid)),
        readings_(readings_of(look.run, one.pid)) {
    standing_.rank = one.rank;
    standing_.pid = one.pid;
    if (one.asleep_since_ns && readings_.slept())
      standing_.for_ns = look.at_ns - *one.asleep_since_ns;
    take_site(stack_);
  }

  Standing describe() {
    const bool known = ended() || stopped() || unseen() || exiting() || moves() || in_call() ||
                       in_native_call() || in_call_of_a_thread() || held();
    if (!known)
      as(Stand::kUnseen, rest());
    return std::move(standing_);
  }

 private:
  bool as(Stand stand, std::string doing) {
    standing_.stand = stand;
    standing_.doing = std::move(doing);
    return true;
  }

  void take_site(const StackSample* stack) {
    if (stack == nullptr)
      return;
    standing_.site = site_of(one_.rank, stack->frames, "");
    standing_.variables.clear();
    const Frame* const frame = user_frame(stack->frames);
    for (const IntegerVariable& variable : stack->variables) {
      if (frame != nullptr && variable.frame < stack->frames.size() &&
          &stack->frames[variable.frame] == frame)
        standing_.variables.emplace_back(variable.name, variable.value);
    }
  }

  bool ended() { return one_.ended && as(Stand::kEnded, "has ended"); }

  bool stopped() {
    if (readings_.last == nullptr || (readings_.last->state != 'T' && readings_.last->state != 't'))
      return false;
    standing_.held = readings_.last->state == 'T' ? Doing::kStopped : Doing::kTraced;
    return as(Stand::kHeld, in_words(Activity{.doing = standing_.held}));
  }

  bool unseen() {
    if (one_.unseen.empty())
      return false;
    standing_.help = one_.help;
    return as(Stand::kUnseen, "was not seen: " + one_.unseen);
  }

  bool exiting() {
    for (const checkers::WayOut& way : checkers::ways_out(look_.run)) {
      if (way.pid != one_.pid)
        continue;
      standing_.site = way.site;
      standing_.more = texts_of(way.evidence);
      standing_.help = way.help;
      return as(Stand::kExiting,
                fmt::format("does not exit: {} is over, and it {}", way.over, way.what));
    }
    return false;
  }

  bool moves() {
    const bool asks =
        stack_ != nullptr && (in_data_loader(stack_->frames) || awaits_store(*stack_) ||
                              (one_.call && one_.call->kind != Call::Kind::kCollective));
    if (!one_.moved && (readings_.slept() || !one_.call || asks))
      return false;
    if (one_.call && readings_.computed() && !one_.moved)
      return as(Stand::kForDevice, "in " + in_words(*one_.call) + ", on a processor");
    return as(Stand::kMoves, "runs");
  }

  bool take_call(const Call& call) {
    switch (call.kind) {
      case Call::Kind::kCollective:
        standing_.stand = Stand::kInCall;
        break;
      case Call::Kind::kSend:
      case Call::Kind::kRecv:
        standing_.stand = Stand::kInMessage;
        break;
      case Call::Kind::kNewGroup:
        standing_.stand = Stand::kInNewGroup;
        break;
      case Call::Kind::kRendezvous:
        standing_.stand = Stand::kInRendezvous;
        break;
    }
    standing_.call = in_words(call);
    if (!one_.in_flight.empty())
      standing_.more.push_back(fmt::format("its thread of Gloo's is in {}", one_.in_flight));
    standing_.members = call.members;
    standing_.peer = call.peer;
    standing_.assumed = call.members.empty() && standing_.stand == Stand::kInCall &&
                        !one_.one_group.value_or(false);
    standing_.doing = "in " + standing_.call;
    return true;
  }

  bool in_call() { return one_.call && take_call(*one_.call); }

  bool in_native_call() {
    if (stack_ == nullptr || !readings_.slept())
      return stack_ != nullptr && awaits_store(*stack_) && in_store();
    if (awaits_store(*stack_))
      return in_store();
    const bool sends = awaits_message(*stack_, history::Op::kSend);
    if (sends || awaits_message(*stack_, history::Op::kRecv)) {
      standing_.call = sends ? "a message that it sends" : "a message that it receives";
      return as(Stand::kInMessage, "waits for " + standing_.call);
    }
    if (in_collective_wait(*stack_)) {
      standing_.call = call_by_native_frames(*stack_, one_.in_flight);
      standing_.assumed = !one_.one_group.value_or(false);
      return as(Stand::kInCall, "in " + standing_.call);
    }
    if (awaits_device(*stack_)) {
      standing_.call = "wait for its GPU";
      return as(Stand::kForDevice, "waits for its GPU");
    }
    return false;
  }

  bool in_store() {
    standing_.call = "the store";
    return as(Stand::kInStore,
              "waits in the store, for a key that nobody has set or for its server");
  }

  bool in_call_of_a_thread() {
    const bool waits = readings_.slept() && readings_.last->for_own_threads;
    if (!one_.call_of_a_thread || !waits)
      return false;
    for (const StackSample& stack : look_.run.stacks) {
      if (stack.pid == one_.pid && stack.tid == one_.thread_of_call)
        take_site(&stack);
    }
    standing_.more.push_back("its main thread waits for another one of its own, which is there");
    return take_call(*one_.call_of_a_thread);
  }

  bool held() {
    Activity held = held_up(look_.run, one_.pid, stack_, kNeverNs);
    const bool asleep = readings_.last != nullptr && readings_.last->state == 'S';
    if (held.doing == Doing::kUnknown && asleep && stack_ != nullptr &&
        in_data_loader(stack_->frames))
      held.doing = Doing::kLoaderWorker;
    if (held.doing == Doing::kUnknown && readings_.slept() && readings_.last->for_own_threads)
      held.doing = Doing::kOwnThread;
    if (held.doing == Doing::kUnknown)
      return readings_.computed() && as(Stand::kBusy, "computes");
    standing_.held = held.doing;
    standing_.held_by = held.held_by;
    if (held.doing == Doing::kLoaderWorker || held.doing == Doing::kChild)
      add_children();
    return as(Stand::kHeld, in_words(held));
  }

  void add_children() {
    constexpr std::size_t kShown = 4;
    const std::vector<ChildState>& children = readings_.state->children;
    for (std::size_t i = 0; i < std::min(children.size(), kShown); ++i) {
      std::string line = in_words(children[i]);
      for (const Worker& worker : one_.workers) {
        if (worker.pid == children[i].pid)
          line += at_site(site_of(one_.rank, worker.stack.frames, ""));
      }
      standing_.more.push_back(std::move(line));
    }
  }

  [[nodiscard]] std::string rest() const {
    if (!one_.no_native.empty())
      return "sleeps; in what is not seen: " + one_.no_native;
    if (readings_.last == nullptr)
      return "was not seen";
    if (readings_.slept())
      return readings_.last->wchan.empty() ? "sleeps" : "sleeps in " + readings_.last->wchan;
    return "wakes up again and again";
  }

  const Look& look_;
  const Looked& one_;
  const StackSample* stack_;
  Readings readings_;
  Standing standing_{};
};

}  // namespace

Standing standing_of(const Look& look, const Looked& one) {
  return Describer(look, one).describe();
}

std::vector<Standing> standings_of(const Look& look) {
  std::vector<Standing> all;
  for (const Rank rank : RankSet::all(look.world_size)) {
    const Looked* const one = look.of(rank);
    if (one != nullptr)
      all.push_back(standing_of(look, *one));
    else if (look.all_here)
      all.push_back({.rank = rank, .stand = Stand::kEnded, .doing = "has no process any more"});
    else
      all.push_back(
          {.rank = rank, .stand = Stand::kNotHere, .doing = "has no process on this host"});
  }
  return all;
}

}  // namespace lockstep::diagnose
