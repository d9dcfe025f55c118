#include "harness/model/source_loops.h"

#include <algorithm>

#include "harness/history/format.h"

namespace lockstep {
namespace {

/// Of the object, whatever was inlined into it.
const std::string& function_of(const Frame& frame) {
  return frame.inlined_into.empty() ? frame.function : frame.inlined_into;
}

}  // namespace

const std::vector<Frame>& frames_of(const Member& member, const Collective& call) {
  return member.process->sites[call.site < member.process->sites.size() ? call.site : 0].frames;
}

bool same_function(const Frame& x, const Frame& y) {
  return x.module == y.module && function_of(x) == function_of(y);
}

Loop loop_of(const Frame& frame, const SourceLoop& loop) {
  return {frame.module, function_of(frame), loop.line};
}

bool stands_in(const std::vector<Frame>& frames, const std::set<Loop>& loops) {
  return std::any_of(frames.begin(), frames.end(), [&](const Frame& frame) {
    return std::any_of(frame.loops.begin(), frame.loops.end(), [&](const SourceLoop& loop) {
      return loops.contains(loop_of(frame, loop));
    });
  });
}

std::optional<Whereabouts> compare(const std::vector<Frame>& earlier,
                                   const std::vector<Frame>& later) {
  if (std::max(earlier.size(), later.size()) >= history::kFramesMax)
    return std::nullopt;  // Cut off: what is around them is not known.
  Whereabouts result;
  auto a = earlier.rbegin();
  auto b = later.rbegin();
  for (;
       a != earlier.rend() && b != later.rend() && same_function(*a, *b) && a->offset == b->offset;
       ++a, ++b) {
    for (const SourceLoop& loop : b->loops)
      result.around_both.emplace_back(&*b, &loop);
  }
  if (a == earlier.rend() || b == later.rend() || !same_function(*a, *b) || a->line == 0 ||
      b->line == 0)
    return std::nullopt;
  result.is_behind = b->line > a->line;
  result.is_before = std::pair(b->line, b->offset) < std::pair(a->line, a->offset);
  for (auto frame = a; frame != earlier.rend(); ++frame) {  // Functions called there have ended.
    for (const SourceLoop& loop : frame->loops) {
      const auto same = std::find(b->loops.begin(), b->loops.end(), loop);
      if (frame == a && same != b->loops.end())
        result.around_both.emplace_back(&*b, &*same);
      else
        result.left.insert(loop_of(*frame, loop));
    }
  }
  return result;
}

std::vector<std::pair<const Frame*, const SourceLoop*>> came_round(
    const std::vector<Frame>& earlier, const std::vector<Frame>& later) {
  const auto at_one_place = [](const Frame& x, const Frame& y) {
    return same_function(x, y) && x.offset == y.offset;
  };
  if (later.size() < history::kFramesMax && !later.empty() &&
      std::equal(earlier.begin(), earlier.end(), later.begin(), later.end(), at_one_place)) {
    std::vector<std::pair<const Frame*, const SourceLoop*>> around;
    for (auto frame = later.rbegin(); frame != later.rend(); ++frame) {
      for (const SourceLoop& loop : frame->loops)
        around.emplace_back(&*frame, &loop);
    }
    return around;
  }
  auto where = compare(earlier, later);
  if (!where || !where->is_before)
    return {};
  return std::move(where->around_both);
}

std::optional<std::int64_t> round_at(const Run& run, const Member& member, const Collective& call,
                                     const Frame& frame, const SourceLoop& loop) {
  std::optional<std::int64_t> value;
  for (const StackSample& sample : run.stacks) {
    if (sample.pid != member.process->pid || sample.at_ns < call.issued_ns)
      continue;
    for (const IntegerVariable& variable : sample.variables) {
      if (variable.name != loop.variable || variable.frame >= sample.frames.size())
        continue;
      const Frame& seen = sample.frames[variable.frame];
      if (same_function(seen, frame) && seen.offset == frame.offset)
        value = variable.value;
    }
  }
  return value;
}

}  // namespace lockstep
