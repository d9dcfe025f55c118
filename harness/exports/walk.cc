#include "harness/exports/walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

namespace lockstep::exports {
namespace {

std::string basename_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

/// "Trainer.train" and "lockstep::Ddp::reduce(int)": train and reduce.
std::string identifier(std::string name) {
  name = name.substr(0, name.find('('));
  name = name.substr(0, name.find('<') == 0 ? std::string::npos : name.find('<'));
  const std::size_t last = name.find_last_of(".:");
  if (last != std::string::npos && last + 1 < name.size())
    name = name.substr(last + 1);
  std::string word;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_')
      word += c;
  }
  if (word.empty() || std::isdigit(static_cast<unsigned char>(word.front())) != 0)
    word = "function_" + word;
  static const std::set<std::string> kTaken{
      "at",       "main",     "start",  "go",   "again",  "rounds", "given",  "received",
      "members",  "is_root",  "how",    "did",  "end",    "now",    "after",  "Call",
      "dist",     "torch",    "os",     "sys",  "time",   "signal", "groups", "works",
      "place",    "print",    "and",    "as",   "assert", "async",  "await",  "break",
      "class",    "continue", "def",    "del",  "elif",   "else",   "except", "finally",
      "for",      "from",     "global", "if",   "import", "in",     "is",     "lambda",
      "nonlocal", "not",      "or",     "pass", "raise",  "return", "try",    "while",
      "with",     "yield",    "None",   "True", "False",  "len",    "range"};
  return kTaken.contains(word) ? word + "_" : word;
}

bool has(const Item& item, const std::string& step) {
  if (item.step == step)
    return true;
  return std::any_of(item.body.begin(), item.body.end(),
                     [&](const Item& inner) { return has(inner, step); });
}

/// The first that has it; the end if none.
std::vector<Item>::iterator find(std::vector<Item>& body, const std::string& step) {
  return std::find_if(body.begin(), body.end(), [&](const Item& item) { return has(item, step); });
}

}  // namespace

std::vector<std::string> Item::steps() const {
  if (!step.empty())
    return {step};
  std::vector<std::string> all;
  for (const Item& item : body) {
    for (const std::string& inner : item.steps()) {
      if (std::find(all.begin(), all.end(), inner) == all.end())
        all.push_back(inner);
    }
  }
  return all;
}

/// Goes through the functions as the program will.
struct Walk::Walker {
  const Walk& walk;
  const std::vector<Path>& paths;
  std::size_t next{};

  [[nodiscard]] bool again(const Path& at, const std::vector<std::string>& steps) const {
    return next < paths.size() && paths[next].size() > at.size() &&
           std::equal(at.begin(), at.end(), paths[next].begin()) &&
           std::find(steps.begin(), steps.end(), paths[next][at.size()]) != steps.end();
  }

  void go(const std::vector<Item>& body, const Path& at) {
    for (const Item& item : body) {
      const std::vector<std::string> steps = item.steps();
      if (item.step.empty()) {
        for (std::size_t before = next + 1; before != next && again(at, steps);) {
          before = next;
          go(item.body, at);
        }
      } else if (again(at, steps)) {
        if (item.function.empty()) {
          ++next;
          continue;
        }
        Path inner = at;
        inner.push_back(item.step);
        go(walk.functions_[walk.named_.at(item.function)].body, inner);
      }
    }
  }
};

std::size_t Walk::function_of(const std::string& file, const std::string& name) {
  const auto [at, is_new] = index_.try_emplace({file, name}, functions_.size());
  if (is_new) {
    const std::string word = name == "<module>" ? "module" : identifier(name);
    std::string unique = word;
    for (int n = 2; named_.contains(unique); ++n)
      unique = fmt::format("{}_{}", word, n);
    named_[unique] = functions_.size();
    functions_.push_back({unique, fmt::format("{}, {}", name, basename_of(file)), {}});
  }
  return at->second;
}

void Walk::insert(std::size_t function, const Place& place, const std::string& step,
                  const std::string& callee, history::Op op) {
  std::vector<Item>* body = &functions_[function].body;
  const auto at = [](std::vector<Item>& items, Item item) -> Item& {
    auto where = std::find_if(items.begin(), items.end(), [&](const Item& other) {
      return other.line == item.line && other.step == item.step &&
             other.variable == item.variable && other.step.empty() == item.step.empty();
    });
    if (where != items.end())
      return *where;
    where = std::find_if(items.begin(), items.end(),
                         [&](const Item& other) { return other.line > item.line; });
    return *items.insert(where, std::move(item));
  };
  for (const SourceLoop& loop : place.loops) {
    Item& around = at(*body, {.line = loop.line,
                              .runs_out = loop.runs_out,
                              .variable = loop.variable.empty() ? "" : identifier(loop.variable)});
    body = &around.body;
  }
  at(*body, {.line = place.line, .step = step, .function = callee, .op = op});
}

Path Walk::add(const ReplayCall& call) {
  Path path;
  std::size_t function = 0;  // The start.
  Place from;
  for (const Place& place : call.places) {
    const std::size_t callee = function_of(place.file, place.function);
    const std::string step = from.line > 0
                                 ? fmt::format("{} {}", from.line, functions_[callee].name)
                                 : functions_[callee].name;
    insert(function, from, step, functions_[callee].name, {});
    path.push_back(step);
    function = callee;
    from = place;
  }
  const std::string step = fmt::format("{} {}", from.line, history::name_of(call.op));
  insert(function, from, step, "", call.op);
  path.push_back(step);
  return path;
}

std::size_t Walk::function_at(const Path& path, std::size_t depth) const {
  std::size_t function = 0;
  for (std::size_t i = 0; i < depth; ++i) {
    const std::size_t space = path[i].find(' ');
    function = named_.at(space == std::string::npos ? path[i] : path[i].substr(space + 1));
  }
  return function;
}

/// A loop around both, in the function in which their ways part.
void Walk::loop_over(const Path& earlier, const Path& later) {
  std::size_t depth = 0;
  while (depth + 1 < later.size() && depth + 1 < earlier.size() && earlier[depth] == later[depth])
    ++depth;
  std::vector<Item>* body = &functions_[function_at(later, depth)].body;
  for (;;) {
    auto first = find(*body, later[depth]);
    auto last = find(*body, earlier[depth]);
    if (last < first)
      std::swap(first, last);
    if (first == last && first->step.empty() && !first->ours) {
      body = &first->body;
      continue;
    }
    Item around{.line = first->line, .runs_out = true, .ours = true};
    const auto end = last == body->end() ? last : last + 1;
    around.body.assign(first, end);
    body->insert(body->erase(first, end), std::move(around));
    return;
  }
}

void Walk::mend(const std::vector<Path>& paths) {
  constexpr int kTriesMax = 64;
  for (int tries = 0; tries < kTriesMax; ++tries) {
    Walker walker{*this, paths};
    walker.go(functions_.front().body, {});
    if (walker.next == paths.size())
      return;
    if (tries + 1 == kTriesMax || walker.next == 0) {  // A round for each call.
      std::vector<Item>& body = functions_.front().body;
      Item around{.runs_out = true, .ours = true};
      around.body = std::move(body);
      body = {std::move(around)};
      continue;
    }
    loop_over(paths[walker.next - 1], paths[walker.next]);
  }
}

Walk::Walk(const Replay& replay) {
  functions_.push_back({"start", "", {}});
  named_["start"] = 0;
  for (const ReplayRank& rank : replay.ranks) {
    paths_.emplace_back();
    for (const ReplayCall& call : rank.calls)
      paths_.back().push_back(add(call));
  }
  for (const std::vector<Path>& paths : paths_)
    mend(paths);
}

}  // namespace lockstep::exports
