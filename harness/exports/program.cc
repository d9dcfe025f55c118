#include "harness/exports/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "harness/exports/walk.h"

namespace lockstep::exports {

extern const char* const kProgram;  // Of program.py.in, by ci/embed_text.cmake.

namespace {

using history::Op;

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

/// The line of the program that makes it.
std::string_view call_of(Op op) {
  switch (op) {
    case Op::kAllReduce:
      return R"(dist.all_reduce(given(), **how("op", "async_op")))";
    case Op::kAllReduceCoalesced:
      return R"(dist.all_reduce_coalesced([given()], **how("op", "async_op")))";
    case Op::kBroadcast:
      return R"(dist.broadcast(given(), **how("group_src", "async_op")))";
    case Op::kReduce:
      return R"(dist.reduce(given(), **how("group_dst", "op", "async_op")))";
    case Op::kAllGather:
      return R"(dist.all_gather([received() for _ in range(members())], given(), **how("async_op")))";
    case Op::kAllGatherSingle:
      return R"(dist.all_gather_into_tensor(received(members()), given(), **how("async_op")))";
    case Op::kReduceScatter:
      return R"(dist.reduce_scatter(received(), [given() for _ in range(members())], **how("op", "async_op")))";
    case Op::kReduceScatterSingle:
      return R"(dist.reduce_scatter_tensor(received(), given(members()), **how("op", "async_op")))";
    case Op::kGather:
      return R"(dist.gather(given(), [received() for _ in range(members())] if is_root() else None, **how("group_dst", "async_op")))";
    case Op::kScatter:
      return R"(dist.scatter(received(), [given() for _ in range(members())] if is_root() else None, **how("group_src", "async_op")))";
    case Op::kAllToAllSingle:
      return R"(dist.all_to_all_single(received(members()), given(members()), **how("async_op")))";
    case Op::kBarrier:
      return R"(dist.barrier(**how("async_op")))";
    case Op::kMonitoredBarrier:
      return R"(dist.monitored_barrier(**how()))";
    case Op::kSend:
      return R"((dist.isend if now().later else dist.send)(given(), **how("group_dst", "tag")))";
    case Op::kRecv:
      return R"((dist.irecv if now().later else dist.recv)(received(), **how("group_src", "tag")))";
    case Op::kRecvAny:
      return R"((dist.irecv if now().later else dist.recv)(received(), **how("tag")))";
    default:  // None that as_made_again() leaves.
      break;
  }
  return "None";
}

std::string dtype_of(history::DType dtype) {
  using history::DType;
  return fmt::format("torch.{}", dtype != DType::kNone ? history::name_of(dtype) : "float32");
}

std::string reduction_of(history::ReduceOp reduce_op) {
  using history::ReduceOp;
  switch (reduce_op) {
    case ReduceOp::kProduct:
      return "PRODUCT";
    case ReduceOp::kMin:
      return "MIN";
    case ReduceOp::kMax:
      return "MAX";
    case ReduceOp::kBand:
      return "BAND";
    case ReduceOp::kBor:
      return "BOR";
    case ReduceOp::kBxor:
      return "BXOR";
    default:
      return "SUM";
  }
}

std::string tuple_of(const std::vector<std::string>& words) {
  std::string text = "(";
  for (const std::string& word : words)
    text += quoted(word) + ", ";
  text.pop_back();
  if (words.size() > 1)
    text.pop_back();
  return text + ")";
}

std::string call_text(const ReplayCall& call, const Path& path) {
  std::string text = fmt::format("Call({}", tuple_of(path));
  if (call.given > 0)
    text += fmt::format(", given={}", call.given);
  if (call.received > 0)
    text += fmt::format(", received={}", call.received);
  if (const std::string dtype = dtype_of(call.dtype); dtype != "torch.float32")
    text += ", dtype=" + dtype;
  if (const std::string op = reduction_of(call.reduce_op); op != "SUM")
    text += ", op=dist.ReduceOp." + op;
  if (call.group > 0)
    text += fmt::format(", group={}", call.group);
  if (call.peer >= 0)
    text += fmt::format(", peer={}", call.peer);
  if (call.tag > 0)
    text += fmt::format(", tag={}", call.tag);
  return text + (call.later ? ", later=True)" : ")");
}

class Plans {
 public:
  Plans(const Replay& replay, const Walk& walk) {
    for (std::size_t rank = 0; rank < replay.ranks.size(); ++rank) {
      std::vector<std::string> names;
      for (std::size_t i = 0; i < replay.ranks[rank].calls.size(); ++i) {
        const ReplayCall& call = replay.ranks[rank].calls[i];
        std::string name = name_of(call_text(call, walk.path(rank, i)));
        for (const std::size_t earlier : call.waits)
          name += fmt::format(", {}", earlier);
        names.push_back(call.waits.empty() ? name : fmt::format("after({})", name));
      }
      plan_ += fmt::format("    {}: {},\n", rank, list_of(names));
    }
  }

  [[nodiscard]] const std::string& calls() const { return calls_; }
  [[nodiscard]] const std::string& plan() const { return plan_; }

 private:
  std::string name_of(const std::string& text) {
    const auto [at, is_new] = names_.try_emplace(text, fmt::format("c{}", names_.size() + 1));
    if (is_new)
      calls_ += fmt::format("{} = {}\n", at->second, text);
    return at->second;
  }

  /// "[c1, c2] * 3 + [c4]"
  static std::string list_of(const std::vector<std::string>& names) {
    std::string text;
    std::string plain;
    const auto flush = [&] {
      if (!plain.empty())
        text += fmt::format("{}[{}]", text.empty() ? "" : " + ", plain);
      plain.clear();
    };
    for (std::size_t i = 0; i < names.size();) {
      std::size_t best = 1;
      std::size_t times = 1;
      for (std::size_t period = 1; period <= 16 && i + 2 * period <= names.size(); ++period) {
        std::size_t n = 1;
        while (i + (n + 1) * period <= names.size() &&
               std::equal(names.begin() + static_cast<std::ptrdiff_t>(i),
                          names.begin() + static_cast<std::ptrdiff_t>(i + period),
                          names.begin() + static_cast<std::ptrdiff_t>(i + n * period)))
          ++n;
        if (n > 1 && n * period > best * times) {
          best = period;
          times = n;
        }
      }
      std::string round;
      for (std::size_t k = i; k < i + best; ++k)
        round += (round.empty() ? "" : ", ") + names[k];
      if (best * times > 3 && times > 1) {
        flush();
        text += fmt::format("{}[{}] * {}", text.empty() ? "" : " + ", round, times);
        i += best * times;
      } else {
        plain += (plain.empty() ? "" : ", ") + names[i++];
      }
    }
    flush();
    return text.empty() ? "[]" : text;
  }

  std::map<std::string, std::string> names_{};
  std::string calls_{}, plan_{};
};

std::string steps_text(const Item& item) {
  std::string text = "at";
  for (const std::string& step : item.steps())
    text += ", " + quoted(step);
  return text;
}

void write_body(const std::vector<Item>& body, std::size_t depth, std::string& text) {
  const std::string indent(4 * depth, ' ');
  for (const Item& item : body) {
    if (!item.step.empty()) {
      text += fmt::format("{}if go(at, {}):\n", indent, quoted(item.step));
      text += item.function.empty()
                  ? fmt::format("{}    did({})\n", indent, call_of(item.op))
                  : fmt::format("{}    {}(at + ({},))\n", indent, item.function, quoted(item.step));
      continue;
    }
    const std::string variable = item.variable.empty() ? "turn" : item.variable;
    if (item.ours) {
      text += fmt::format("{}def turn() -> None:\n", indent);
    } else if (item.runs_out) {
      text += fmt::format("{}for {} in rounds({}):\n", indent, variable, steps_text(item));
    } else if (item.variable.empty()) {
      text += fmt::format("{}while again({}):\n", indent, steps_text(item));
    } else {
      text += fmt::format("{}for {} in range(sys.maxsize):\n", indent, variable);
      text += fmt::format("{}    if not again({}):\n{}        break\n", indent, steps_text(item),
                          indent);
    }
    write_body(item.body, depth + 1, text);
    if (item.ours)
      text += fmt::format("{}repeat(turn, {})\n", indent, steps_text(item));
  }
}

std::string functions_text(const Walk& walk) {
  std::string text;
  for (const Function& function : walk.functions()) {
    text += fmt::format("\n\ndef {}(at: tuple) -> None:{}\n", function.name,
                        function.about.empty() ? "" : "  # " + function.about);
    write_body(function.body, 1, text);
  }
  return text;
}

std::string groups_text(const Replay& replay) {
  std::string text = "[";
  for (const ReplayGroup& group : replay.groups) {
    text += text.size() > 1 ? ", " : "";
    if (group.is_world) {
      text += "None";
      continue;
    }
    std::string ranks;
    for (const Rank rank : group.ranks)
      ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", rank.value);
    text += "[" + ranks + "]";
  }
  return text + "]";
}

std::string ends_text(const Replay& replay) {
  std::string text;
  const auto add = [&](std::size_t rank, std::string_view how, const std::string& what) {
    text += fmt::format("{}{}: (\"{}\", {})", text.empty() ? "" : ", ", rank, how, what);
  };
  for (std::size_t rank = 0; rank < replay.ranks.size(); ++rank) {
    const ReplayRank& of = replay.ranks[rank];
    switch (of.end) {
      case RankEnd::kWaits:
        break;
      case RankEnd::kLeaves:
        add(rank, "leaves", "None");
        break;
      case RankEnd::kRaises:
        add(rank, "raises", quoted(of.text));
        break;
      case RankEnd::kExits:
        add(rank, "exits", fmt::format("{}", of.status));
        break;
      case RankEnd::kKilled:
        add(rank, "killed", fmt::format("{}", of.status));
        break;
      case RankEnd::kSleeps:
        add(rank, "sleeps", "None");
        break;
    }
  }
  return text;
}

/// One that stands in a text of three quotes.
std::string plain(std::string text) {
  std::replace(text.begin(), text.end(), '\\', '/');
  std::replace(text.begin(), text.end(), '"', '\'');
  return text;
}

std::string head_text(const Replay& replay, const Finding& finding, const ProgramHead& head) {
  const std::size_t world = replay.ranks.size();
  const bool sleeps = !head.fixed && std::any_of(replay.ranks.begin(), replay.ranks.end(),
                                                 [](const ReplayRank& rank) {
                                                   return rank.end == RankEnd::kSleeps;
                                                 });
  std::string text =
      head.fixed
          ? fmt::format("The twin of a program for {}: here all ranks make the calls, and it ends.",
                        text_of(finding.code))
          : fmt::format("{} again: {}", text_of(finding.code), finding.headline);
  text += fmt::format("\n\nIts ranks make the calls of run {}, over Gloo, with tensors of ones.\n",
                      head.run);
  text += fmt::format("Written by lockstep {} (export --to program). It needs torch alone:\n\n",
                      head.version);
  text += fmt::format("    lockstep run -n {}{} -- python THIS\n", world,
                      sleeps ? " --stall-limit 10" : "");
  text += fmt::format("    torchrun --nproc-per-node {} THIS\n", world);
  for (const std::string& note : replay.notes)
    text += "\n" + note;
  return plain(text) + (replay.notes.empty() ? "" : "\n");
}

}  // namespace

std::string render_program(const Replay& replay, const Finding& finding, const ProgramHead& head) {
  const Walk walk(replay);
  const Plans plans(replay, walk);
  std::string text(kProgram);
  const auto fill = [&](std::string_view mark, const std::string& with) {
    for (std::size_t at = text.find(mark); at != std::string::npos;
         at = text.find(mark, at + with.size()))
      text.replace(at, mark.size(), with);
  };
  fill("@WORLD@", fmt::format("{}", replay.ranks.size()));
  fill("@GROUPS@", groups_text(replay));
  fill("@CALLS@\n", plans.calls());
  fill("@PLAN@", plans.plan());
  fill("@ENDS@", ends_text(replay));
  fill("@FUNCTIONS@\n", functions_text(walk));
  fill("@HEAD@", head_text(replay, finding, head));
  return text;
}

}  // namespace lockstep::exports
