#include "checkers/blame/sequence_alignment.h"

#include <algorithm>

#include "harness/model/matching.h"

namespace lockstep::checkers {
namespace {

constexpr std::size_t kEditMax = 16;   // Calls inserted or left out that are tried.
constexpr std::size_t kContext = 8;    // Calls before one that make up its context.
constexpr std::size_t kMatchMax = 64;  // More agreement than this adds no certainty.

bool same(const Token& a, const Token& b) {
  if (a.call == nullptr || b.call == nullptr)
    return a.call == b.call;
  return agree(*a.call, *b.call);
}

/// Of one rank: the same line too.
bool same_call(const Token& a, const Token& b) {
  return same(a, b) && (a.site == 0 || b.site == 0 || a.site == b.site);
}

/// From the same line too, as far as both are known to be.
bool same_line(const Token& a, const Token& b) {
  return same(a, b) && (a.call == nullptr || (a.site != 0 && a.site == b.site));
}

using Compare = bool (*)(const Token&, const Token&);

/// Calls that agree from a[i] and b[j] on until one side ends; -1 if they disagree before.
std::int64_t follow(const std::vector<Token>& a, std::size_t i, const std::vector<Token>& b,
                    std::size_t j, Compare alike = same, std::size_t most = kMatchMax) {
  std::int64_t calls = 0;
  for (std::size_t n = 0; n < most && i + n < a.size() && j + n < b.size(); ++n) {
    if (!alike(a[i + n], b[j + n]))
      return -1;
    calls += a[i + n].call != nullptr ? 1 : 0;
  }
  return calls;
}

/// Calls that agree after a[i] took the place of b[j]. A line that is wrong is so in every round.
std::int64_t follow_replaced(const std::vector<Token>& a, std::size_t i,
                             const std::vector<Token>& b, std::size_t j) {
  std::int64_t calls = 0;
  for (std::size_t n = 1; n <= kMatchMax && i + n < a.size() && j + n < b.size(); ++n) {
    if (same(a[i + n], b[j + n]))
      calls += a[i + n].call != nullptr ? 1 : 0;
    else if (!same_line(a[i + n], a[i]) || !same_line(b[j + n], b[j]))
      return 0;
  }
  return calls;
}

struct Edit {
  std::int64_t matched{};
  std::size_t calls{};
};

/// `shorter` continued at i is `longer` with calls[j..j+k) left out. Requests are never left out.
Edit best_edit(const std::vector<Token>& shorter, std::size_t i, const std::vector<Token>& longer,
               std::size_t j, Compare alike = same, std::size_t most = kMatchMax) {
  Edit best{};
  for (std::size_t k = 1;
       k <= kEditMax && j + k < longer.size() && longer[j + k - 1].call != nullptr; ++k) {
    const std::int64_t matched = follow(shorter, i, longer, j + k, alike, most);
    if (matched > best.matched)
      best = {matched, k};
  }
  return best;
}

/// What a rank that is stuck at its last token would have done next, taken from what it did after
/// the same two calls before.
std::vector<Token> continued(const TokenWindow& window) {
  std::vector<Token> tokens = window.tokens;
  const std::size_t end = tokens.size();
  for (std::size_t p = window.position; p-- > 1;) {
    const std::size_t length =
        end - window.position;  // Tokens from the position on must recur there.
    bool recurs =
        p + length < window.position && same_call(tokens[p - 1], tokens[window.position - 1]);
    for (std::size_t n = 0; recurs && n < length; ++n)
      recurs = same_call(tokens[p + n], tokens[window.position + n]);
    if (!recurs)
      continue;
    for (std::size_t n = p + length; n < window.position && n < p + length + kEditMax; ++n)
      tokens.push_back(tokens[n]);
    break;
  }
  return tokens;
}

/// The call at the position was already made since the last request (or, without requests, just
/// before).
bool repeats(const TokenWindow& window) {
  const Token& due = window.tokens[window.position];
  const bool requests = std::any_of(window.tokens.begin(), window.tokens.end(),
                                    [](const Token& token) { return token.call == nullptr; });
  for (std::size_t p = window.position; p-- > 0;) {
    if (window.tokens[p].call == nullptr)
      return false;
    if (same(window.tokens[p],
             due))  // From whichever line: an extra round may have one of its own.
      return true;
    if (!requests)
      break;
  }
  return false;
}

bool swapped(const std::vector<Token>& a, std::size_t i, const std::vector<Token>& b,
             std::size_t j) {
  if (i + 1 >= a.size() || j + 1 >= b.size() || a[i].call == nullptr || a[i + 1].call == nullptr ||
      b[j].call == nullptr || b[j + 1].call == nullptr)
    return false;
  const bool sites = a[i].site != 0 && a[i + 1].site != 0 && a[i].site != a[i + 1].site &&
                     a[i].site == b[j + 1].site && a[i + 1].site == b[j].site;
  return sites && agree(*a[i].call, *b[j + 1].call) && agree(*a[i + 1].call, *b[j].call) &&
         follow(a, i + 2, b, j + 2) >= 0;
}

/// Calls directly before the position that agree and come from other lines, after some that come
/// from the same: where the two really parted. Zero if lines were never the same, or are not known.
std::size_t parted_before(const std::vector<Token>& a, std::size_t i, const std::vector<Token>& b,
                          std::size_t j) {
  for (std::size_t back = 0; back <= kEditMax && back < i && back < j; ++back) {
    const Token& x = a[i - back - 1];
    const Token& y = b[j - back - 1];
    if ((x.call == nullptr) != (y.call == nullptr) ||
        (x.call != nullptr && (x.site == 0 || y.site == 0)))
      return 0;
    if (x.call == nullptr || x.site == y.site)
      return back;
  }
  return 0;
}

/// The edit that makes lines fit as well, at or after the place where they parted.
Explanation explain_by_lines(const std::vector<Token>& a, std::size_t i,
                             const std::vector<Token>& b, std::size_t j) {
  Explanation best;
  const std::size_t parted = parted_before(a, i, b, j);
  for (std::size_t back = 1; back <= parted; ++back) {
    const Edit left_out = best_edit(a, i - back, b, j - back, same_line);
    const Edit inserted = best_edit(b, j - back, a, i - back, same_line);
    const bool missing = left_out.matched > inserted.matched;
    const Edit& edit = missing ? left_out : inserted;
    if (left_out.matched == inserted.matched ||
        static_cast<std::uint64_t>(edit.matched) <= best.matched)
      continue;
    best = {.code = missing ? Code::kMissingCall : Code::kExtraCall,
            .calls = edit.calls,
            .matched = static_cast<std::uint64_t>(edit.matched),
            .back = back,
            .also = {}};
  }
  return best;
}

}  // namespace

TokenWindow window_around(const Run& run, const Member& member, std::uint64_t seq,
                          std::size_t before, std::size_t after) {
  std::vector<std::uint64_t> requests;
  for (const Request& request : run.requests) {
    if (request.role == Role::kRank && request.rank == member.rank)
      requests.push_back(request.at_ns);
  }
  std::sort(requests.begin(), requests.end());
  TokenWindow window;
  const std::uint64_t begin = std::max(member.first_seq, seq > before ? seq - before : 0);
  const std::uint64_t end = std::min(member.end_seq(), seq + after + 1);
  auto next = requests.begin();
  bool found = false;
  for (std::uint64_t s = begin; s < end; ++s) {
    const Collective* call = member.at(s);
    if (call == nullptr) {  // A hole: what lies before it is not context.
      if (s < seq)
        window.tokens.clear();
      else
        break;
      continue;
    }
    const bool first = window.tokens.empty();
    bool crossed = false;
    while (next != requests.end() && *next <= call->issued_ns) {
      crossed = true;
      ++next;
    }
    if (crossed && !first)
      window.tokens.push_back({});
    if (s == seq) {
      window.position = window.tokens.size();
      found = true;
    }
    window.tokens.push_back({call, member.site_key(*call)});
  }
  if (!found)
    window.position = window.tokens.size();
  return window;
}

Explanation explain(const TokenWindow& suspect, const TokenWindow& reference) {
  const std::vector<Token>& a = suspect.tokens;
  const std::vector<Token>& b = reference.tokens;
  const std::size_t i = suspect.position;
  const std::size_t j = reference.position;
  if (i >= a.size() || j >= b.size())
    return {};
  if (swapped(a, i, b, j))
    return {.code = Code::kSwapped, .calls = 2, .matched = 2, .back = 0, .also = {}};
  if (Explanation by_lines = explain_by_lines(a, i, b, j); by_lines.code != Code::kNone)
    return by_lines;
  const std::int64_t replaced = follow_replaced(a, i, b, j);
  const Edit left_out = best_edit(a, i, b, j);
  const Edit inserted = best_edit(b, j, a, i);
  const std::int64_t best = std::max(left_out.matched, inserted.matched);
  if (best > replaced) {
    const bool tie = left_out.matched == inserted.matched && left_out.calls == inserted.calls;
    if (tie)
      return {.code = Code::kNone,
              .calls = 0,
              .matched = 0,
              .back = 0,
              .also = {Code::kExtraCall, Code::kMissingCall}};
    const bool missing = left_out.matched > inserted.matched ||
                         (left_out.matched == inserted.matched && left_out.calls < inserted.calls);
    const Edit& edit = missing ? left_out : inserted;
    return {.code = missing ? Code::kMissingCall : Code::kExtraCall,
            .calls = edit.calls,
            .matched = static_cast<std::uint64_t>(edit.matched),
            .back = 0,
            .also = {}};
  }
  if (replaced > 0)
    return {};
  // Everybody is stuck here, nothing follows: judge by what came next on earlier occasions.
  // A rank that left out the rest of its loop and one that made a call too many look alike, unless
  // requests show where the loop begins.
  const std::vector<Token> habitual = continued(reference);
  const bool left_out_before = best_edit(a, i, habitual, j).matched > 0;
  const bool again = repeats(suspect);
  const bool requests =
      std::any_of(a.begin(), a.end(), [](const Token& t) { return t.call == nullptr; });
  if (requests && left_out_before != again)
    return {.code = again ? Code::kExtraCall : Code::kMissingCall,
            .calls = again ? 1 : best_edit(a, i, habitual, j).calls,
            .matched = 0,
            .back = 0,
            .also = {}};
  if (left_out_before)
    return {.code = Code::kNone,
            .calls = 0,
            .matched = 0,
            .back = 0,
            .also = {Code::kExtraCall, Code::kMissingCall}};
  if (again)
    return {.code = Code::kNone, .calls = 0, .matched = 0, .back = 0, .also = {Code::kExtraCall}};
  return {};
}

std::optional<std::size_t> left_out(const std::vector<Token>& shorter,
                                    const std::vector<Token>& longer) {
  std::size_t n = 0;
  while (n < shorter.size() && n < longer.size() && same_line(shorter[n], longer[n]))
    ++n;
  const std::size_t most = std::max(shorter.size(), longer.size());
  const Edit left_out = best_edit(shorter, n, longer, n, same_line, most);
  const Edit inserted = best_edit(longer, n, shorter, n, same_line, most);
  const bool shown = left_out.matched >= static_cast<std::int64_t>(kContext) && inserted.calls == 0;
  return shown ? std::optional(n) : std::nullopt;
}

UsualNextCall usual_next_call(const TokenWindow& window) {
  std::vector<Token> calls;
  for (std::size_t p = 0; p < window.tokens.size() && p <= window.position; ++p) {
    if (window.tokens[p].call != nullptr)
      calls.push_back(window.tokens[p]);
  }
  if (calls.size() < kContext + 2 || window.position >= window.tokens.size())
    return {};
  const std::size_t now = calls.size() - 1;
  std::size_t occasions = 0;
  std::size_t last = 0;  // Where the context occurred, and what came then.
  for (std::size_t p = kContext; p < now; ++p) {
    bool recurs = true;
    for (std::size_t n = 1; recurs && n <= kContext; ++n)
      recurs = same_call(calls[p - n], calls[now - n]);
    if (!recurs)
      continue;
    if (occasions > 0 && !same_call(calls[p], calls[last]))
      return {};  // What came then was never one thing.
    last = p;
    ++occasions;
  }
  if (occasions > 0 && same_call(calls[last], calls[now]))
    return {UsualNextCall::Kind::kFollowed, calls[last].call};
  // A line that it was never at begins something new, such as what is done after the loop.
  const bool been_there = std::any_of(calls.begin(), std::prev(calls.end()), [&](const Token& t) {
    return calls[now].site == 0 || t.site == calls[now].site;
  });
  return occasions >= 2 && been_there
             ? UsualNextCall{UsualNextCall::Kind::kBroken, calls[last].call}
             : UsualNextCall{};
}

}  // namespace lockstep::checkers
