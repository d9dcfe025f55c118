#include "harness/symbols/python_loops.h"

#include <algorithm>
#include <cctype>

namespace lockstep::symbols {
namespace {

/// What of a source is inside brackets and strings: their line ends begin no statement.
class Nesting {
 public:
  /// Takes the line that begins at `at`; returns where the next one begins.
  std::size_t take_line(std::string_view text, std::size_t at) {
    continued_ = false;
    while (at < text.size() && text[at] != '\n')
      at = quote_.empty() ? take_code(text, at) : take_string(text, at);
    if (quote_.size() == 1 && !continued_)
      quote_ = {};  // Never closed: no valid source.
    return at + 1;
  }

  [[nodiscard]] bool begins_a_statement() const {
    return depth_ == 0 && quote_.empty() && !continued_;
  }

 private:
  std::size_t take_code(std::string_view text, std::size_t at) {
    const char c = text[at];
    if (c == '#')
      return std::min(text.find('\n', at), text.size());
    if (c == '"' || c == '\'') {
      const bool three = text.substr(at + 1, 2) == std::string_view(c == '"' ? "\"\"" : "''");
      quote_ = text.substr(at, three ? 3 : 1);
      return at + quote_.size();
    }
    if (c == '(' || c == '[' || c == '{')
      ++depth_;
    else if (c == ')' || c == ']' || c == '}')
      depth_ = std::max(0, depth_ - 1);
    return take_escape(text, at);
  }

  std::size_t take_string(std::string_view text, std::size_t at) {
    const std::string_view rest = text.substr(at, std::min(text.find('\n', at), text.size()) - at);
    const char stops[] = {quote_.front(), '\\'};
    const std::size_t stop = std::min(rest.find_first_of({stops, 2}), rest.size());
    if (stop > 0)
      return at + stop;
    if (text.substr(at, quote_.size()) == quote_) {
      const std::size_t end = at + quote_.size();
      quote_ = {};
      return end;
    }
    return take_escape(text, at);
  }

  std::size_t take_escape(std::string_view text, std::size_t at) {
    if (text[at] != '\\')
      return at + 1;
    continued_ = at + 1 >= text.size() || text[at + 1] == '\n';
    return continued_ ? at + 1 : at + 2;
  }

  std::int32_t depth_{};
  std::string_view quote_{};  // As it was opened; empty outside strings.
  bool continued_{};          // The line ends with a backslash.
};

std::string_view first_word(std::string_view text) {
  std::size_t end = 0;
  while (end < text.size() &&
         (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_'))
    ++end;
  return text.substr(0, end);
}

/// In this line, even if only in a string or a comment.
bool has_word(std::string_view line, std::string_view word) {
  const auto is_letter = [&](std::size_t at) {
    return at < line.size() &&
           (std::isalnum(static_cast<unsigned char>(line[at])) != 0 || line[at] == '_');
  };
  for (std::size_t at = line.find(word); at != std::string_view::npos;
       at = line.find(word, at + 1)) {
    if ((at == 0 || !is_letter(at - 1)) && !is_letter(at + word.size()))
      return true;
  }
  return false;
}

}  // namespace

PythonSource::Statement PythonSource::statement_of(std::string_view text, std::int32_t line,
                                                   std::int32_t indent) {
  const std::string_view its_line = text.substr(0, text.find('\n'));
  const bool leaves = has_word(its_line, "break") || has_word(its_line, "return");
  std::string_view word = first_word(text);
  if (word == "async") {
    text.remove_prefix(std::min(text.find_first_not_of(' ', 5), text.size()));
    word = first_word(text);
  }
  if (word == "for") {
    text.remove_prefix(std::min(text.find_first_not_of(" (", 3), text.size()));
    return {line, indent, Kind::kLoop, std::string(first_word(text)), leaves};
  }
  if (word == "while")
    return {line, indent, Kind::kLoop, "", /*leaves=*/true};
  const Kind kind = word == "def" || word == "class" ? Kind::kScope
                    : word == "finally"              ? Kind::kFinally
                                                     : Kind::kOther;
  return {line, indent, kind, "", leaves};
}

PythonSource::PythonSource(std::string_view text) {
  Nesting nesting;
  for (std::size_t at = 0; at < text.size();) {
    ++lines_;
    std::size_t begin = at;
    std::int32_t indent = 0;
    for (; begin < text.size() && (text[begin] == ' ' || text[begin] == '\t'); ++begin)
      indent = text[begin] == ' ' ? indent + 1 : (indent / 8 + 1) * 8;
    const bool blank =
        begin >= text.size() || text[begin] == '#' || text[begin] == '\n' || text[begin] == '\r';
    if (nesting.begins_a_statement() && !blank)
      statements_.push_back(statement_of(text.substr(begin), lines_, indent));
    at = nesting.take_line(text, at);
  }
}

bool PythonSource::runs_out(std::vector<Statement>::const_iterator loop) const {
  bool leaves = loop->leaves;
  for (auto at = std::next(loop); at != statements_.end() && at->indent > loop->indent; ++at)
    leaves |= at->leaves;
  return !leaves;
}

std::vector<std::vector<PythonSource::Statement>::const_iterator> PythonSource::around(
    std::int32_t line) const {
  std::vector<std::vector<Statement>::const_iterator> all;
  auto after = std::upper_bound(statements_.begin(), statements_.end(), line,
                                [](std::int32_t l, const Statement& s) { return l < s.line; });
  if (after == statements_.begin() || line > lines_)
    return all;
  std::int32_t indent = std::prev(after)->indent + 1;  // The statement itself counts.
  for (auto at = after; at != statements_.begin();) {
    --at;
    if (at->indent >= indent)
      continue;
    indent = at->indent;
    if (at->kind == Kind::kScope)
      break;
    all.push_back(at);
  }
  return all;
}

std::vector<SourceLoop> PythonSource::loops_around(std::int32_t line) const {
  std::vector<SourceLoop> loops;
  for (const auto& statement : around(line)) {
    if (statement->kind == Kind::kLoop)
      loops.push_back({statement->line, statement->variable, runs_out(statement)});
  }
  std::reverse(loops.begin(), loops.end());
  return loops;
}

bool PythonSource::in_finally(std::int32_t line) const {
  const auto statements = around(line);
  return std::any_of(statements.begin(), statements.end(),
                     [](const auto& statement) { return statement->kind == Kind::kFinally; });
}

}  // namespace lockstep::symbols
