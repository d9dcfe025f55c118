#include "harness/model/stack_patterns.h"

#include <algorithm>
#include <array>
#include <initializer_list>

namespace lockstep {
namespace {

enum class Language : std::uint8_t { kAny, kPython, kNative };

struct Row {
  Sign sign{};
  Language language{};
  std::string_view function{}, source{};
};

#define ROW(sign, language, function, source) Row{Sign::sign, Language::language, function, source},
constexpr std::array kRows{
#include "harness/model/stack_patterns.inc"
};
#undef ROW

#define ROW(wait, part) std::pair{KernelWait::wait, std::string_view{part}},
constexpr std::array kChannels{
#include "harness/model/wait_channels.inc"
};
#undef ROW

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('/') + 1); }

/// As stack_patterns.inc says.
bool fits(std::string_view text, std::string_view pattern) {
  bool from_here = !pattern.empty() && pattern.front() == '^';
  const bool to_the_end = !pattern.empty() && pattern.back() == '$';
  pattern = pattern.substr(from_here ? 1 : 0);
  pattern.remove_suffix(to_the_end ? 1 : 0);
  while (true) {
    const std::size_t star = pattern.find('*');
    const std::string_view part = pattern.substr(0, star);
    const bool is_last = star == std::string_view::npos;
    const std::size_t at = is_last && to_the_end ? text.rfind(part) : text.find(part);
    if (at == std::string_view::npos || (from_here && at != 0) ||
        (is_last && to_the_end && at + part.size() != text.size()))
      return false;
    if (is_last)
      return true;
    text.remove_prefix(at + part.size());
    pattern.remove_prefix(star + 1);
    from_here = false;
  }
}

bool is_from(const Frame& frame, std::string_view source) {
  if (source.empty())
    return true;
  if (source.find('/') == std::string_view::npos)
    return fits(last_part(frame.module.empty() ? frame.file : frame.module), source);
  return fits(frame.module, source) || fits(frame.file, source);
}

bool fits(const Frame& frame, const Row& row) {
  return (row.language == Language::kAny ||
          frame.is_python() == (row.language == Language::kPython)) &&
         fits(frame.function, row.function) && is_from(frame, row.source);
}

/// The frame that LibTorch was entered last in is of this sign, and waits without a limit there.
bool sleeps_in(const StackSample& stack, Sign sign) {
  bool waits = false;
  for (const Frame& frame : stack.frames) {
    if (is(frame, Sign::kTimedWait))
      return false;
    waits |= is(frame, Sign::kConditionWait);
    if (is(frame, Sign::kOfLibTorch))
      return waits && is(frame, sign);
  }
  return false;
}

}  // namespace

bool is(const Frame& frame, Sign sign) {
  return std::any_of(kRows.begin(), kRows.end(),
                     [&](const Row& row) { return row.sign == sign && fits(frame, row); });
}

bool any(const std::vector<Frame>& frames, Sign sign) {
  return std::any_of(frames.begin(), frames.end(),
                     [&](const Frame& frame) { return is(frame, sign); });
}

KernelWait kernel_wait(std::string_view channel) {
  const auto* const row = std::find_if(kChannels.begin(), kChannels.end(), [&](const auto& each) {
    return channel.find(each.second) != std::string_view::npos;
  });
  return row == kChannels.end() ? KernelWait::kNone : row->first;
}

bool is_python(const Frame& frame) {
  return is(frame, Sign::kOfPython) || frame.file.find(".py") != std::string::npos;
}

bool is_known_helper(const StackSample& stack) {
  if (any(stack.frames, Sign::kHelper))
    return true;
  const auto runs = std::find_if(stack.frames.rbegin(), stack.frames.rend(), [](const Frame& f) {
    return f.is_python() && !is(f, Sign::kThreading);
  });
  return runs != stack.frames.rend() && is(*runs, Sign::kHelperPackage);
}

bool in_untimed_lock(const StackSample& stack) {
  for (const Frame& frame : stack.frames) {
    if (is(frame, Sign::kTimedWait))
      return false;
  }
  return any(stack.frames, Sign::kLock);
}

bool joins_a_thread(const StackSample& stack) {
  const auto frame = std::find_if(stack.frames.begin(), stack.frames.end(),
                                  [](const Frame& each) { return each.is_python(); });
  return frame != stack.frames.end() && is(*frame, Sign::kJoinsAThread);
}

bool awaits_message(const StackSample& stack, history::Op op) {
  return history::is_point_to_point(op) &&
         any(stack.frames, op == history::Op::kSend ? Sign::kSendWait : Sign::kRecvWait);
}

bool blocks_by_name(const StackSample& stack) { return any(stack.frames, Sign::kBlockingMessage); }

bool is_of_libtorch(const StackSample& stack) {
  return any(stack.frames, Sign::kOfTorchCpu) &&
         std::all_of(stack.frames.begin(), stack.frames.end(), [](const Frame& frame) {
           return is(frame, Sign::kOfTorchCpu) || is(frame, Sign::kUnderTorch);
         });
}

bool is_idle_in_autograd(const StackSample& stack) {
  return sleeps_in(stack, Sign::kAutogradIdle) && !any(stack.frames, Sign::kBackward);
}

bool works_for_backward(const StackSample& stack) {
  return any(stack.frames, Sign::kAutogradThread) && !any(stack.frames, Sign::kBackward);
}

bool awaits_autograd(const StackSample& stack) {
  return any(stack.frames, Sign::kBackward) && sleeps_in(stack, Sign::kAutogradWait);
}

bool is_for_tasks(const StackSample& stack) { return any(stack.frames, Sign::kTaskPool); }

bool awaits_store(const StackSample& stack) { return any(stack.frames, Sign::kStoreCall); }

bool is_in_new_group(const StackSample& stack) {
  return any(stack.frames, Sign::kNewGroup) && any(stack.frames, Sign::kStoreWait);
}

bool in_data_loader(const std::vector<Frame>& frames) { return any(frames, Sign::kDataLoader); }

bool waits_for_a_task(const StackSample& stack) {
  for (const Frame& frame : stack.frames) {
    if (is(frame, Sign::kPoolWorker))
      return true;
    if (frame.is_python() && !is(frame, Sign::kMultiprocessing))
      return false;
  }
  return false;
}

bool awaits_device(const StackSample& stack) { return any(stack.frames, Sign::kDeviceSync); }

bool in_collective_wait(const StackSample& stack) {
  const std::vector<Frame>& frames = stack.frames;
  if (any(frames, Sign::kTimedWait) || any(frames, Sign::kStore))
    return false;
  const bool sleeps = any(frames, Sign::kConditionWait) || any(frames, Sign::kFutex);
  return any(frames, Sign::kWorkWait) ||
         (any(frames, Sign::kFutureWait) && any(frames, Sign::kC10d)) ||
         (any(frames, Sign::kReducerEnd) && sleeps);
}

std::uint64_t lasted_ns(const Run& run, const StackSample& last,
                        const std::function<bool(const StackSample&)>& is_so) {
  std::uint64_t since_ns = last.at_ns;
  for (const StackSample& stack : run.stacks) {
    if (stack.pid == last.pid && stack.tid == last.tid && stack.at_ns <= last.at_ns)
      since_ns = is_so(stack) ? std::min(since_ns, stack.at_ns) : last.at_ns;
  }
  return last.at_ns - since_ns;
}

}  // namespace lockstep
