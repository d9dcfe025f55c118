#include "harness/symbols/cpp_loops.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <set>

namespace lockstep::symbols {
namespace {

constexpr int kDepthMax = 256;  // Of statements and brackets in each other.

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// The words and the punctuators of a source, without comments, literals and directives.
class Tokens {
 public:
  explicit Tokens(std::string_view text) : text_(text) { next(); }

  /// One word or one character; empty at the end.
  [[nodiscard]] std::string_view now() const { return now_; }
  [[nodiscard]] std::int32_t line() const { return line_; }
  [[nodiscard]] std::int32_t line_before() const { return line_before_; }

  void next() {
    line_before_ = line_;
    now_ = {};
    while (at_ < text_.size() && now_.empty())
      take();
  }

 private:
  void take() {
    const char c = text_[at_];
    if (c == '\n') {
      ++line_;
      ++at_;
      at_line_begin_ = true;
    } else if (std::isspace(static_cast<unsigned char>(c)) != 0 || c == '\\') {
      ++at_;
    } else if (text_.substr(at_, 2) == "//") {
      to_end_of_line();
    } else if (text_.substr(at_, 2) == "/*") {
      skip_to(text_.find("*/", at_ + 2), 2);
    } else if (c == '#' && at_line_begin_) {
      to_end_of_line();
    } else {
      at_line_begin_ = false;
      take_token(c);
    }
  }

  void take_token(char c) {
    std::size_t end = at_ + 1;
    if (c == '"' || c == '\'') {
      take_literal(c);
      return;
    }
    const bool is_number = std::isdigit(static_cast<unsigned char>(c)) != 0;
    while (is_word(c) && end < text_.size() &&
           (is_word(text_[end]) || (is_number && (text_[end] == '\'' || text_[end] == '.'))))
      ++end;
    now_ = text_.substr(at_, end - at_);
    at_ = end;
    if (is_word(c) && now_.back() == 'R' && now_.size() <= 3 && text_.substr(at_, 1) == "\"")
      take_raw_string();
  }

  void take_literal(char quote) {
    for (++at_; at_ < text_.size() && text_[at_] != quote && text_[at_] != '\n'; ++at_) {
      if (text_[at_] == '\\' && at_ + 1 < text_.size())
        line_ += text_[++at_] == '\n' ? 1 : 0;
    }
    at_ += at_ < text_.size() && text_[at_] == quote ? 1 : 0;
    now_ = "\"";
  }

  void take_raw_string() {
    const std::size_t open = std::min(text_.find('(', at_), text_.size());
    std::string end = ")";
    end.append(text_.substr(at_ + 1, open - at_ - 1)).push_back('"');
    skip_to(text_.find(end, open), end.size());
  }

  /// An escaped line end goes on.
  void to_end_of_line() {
    for (; at_ < text_.size() && text_[at_] != '\n'; ++at_) {
      if (text_.substr(at_, 2) == "\\\n") {
        ++at_;
        ++line_;
      }
    }
  }

  void skip_to(std::size_t found, std::size_t length) {
    const std::size_t end = found == std::string_view::npos ? text_.size() : found + length;
    line_ += static_cast<std::int32_t>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                                  text_.begin() + static_cast<std::ptrdiff_t>(end),
                                                  '\n'));
    at_ = end;
  }

  std::string_view text_;
  std::size_t at_{};
  std::string_view now_{};
  std::int32_t line_{1}, line_before_{1};
  bool at_line_begin_{true};
};

}  // namespace

/// Statements, and of expressions the brackets only.
class CppSource::Parser {
 public:
  Parser(std::string_view text, std::vector<Extent>& extents) : tokens_(text), extents_(extents) {}

  /// False: it cannot be read.
  bool parse() {
    while (good_ && !tokens_.now().empty())
      statement();
    return good_;
  }

 private:
  void statement() {
    const Depth depth(*this);
    const std::string_view word = tokens_.now();
    if (word == "{") {
      block();
    } else if (word == "for" || word == "while") {
      loop([this] { head_and_body(); });
    } else if (word == "do") {
      loop([this] {
        tokens_.next();
        statement();
        expect("while");
        to_semicolon();
      });
    } else if (word == "if" || word == "switch") {
      head_and_body();
      if (tokens_.now() == "else") {
        tokens_.next();
        statement();
      }
    } else if (word == "case" || word == "default") {
      while (good_ && !tokens_.now().empty() && tokens_.now() != ":")
        tokens_.next();
      tokens_.next();
    } else {
      to_semicolon();
    }
  }

  /// `for (...) statement`, and what is like it; `if constexpr`, too.
  void head_and_body() {
    tokens_.next();
    while (!tokens_.now().empty() && tokens_.now() != "(" && tokens_.now() != "{" &&
           tokens_.now() != ";")
      tokens_.next();
    if (tokens_.now() == "(")
      group(")");
    statement();
  }

  template <class Parse>
  void loop(Parse parse) {
    const std::size_t number = extents_.size();
    extents_.push_back({tokens_.line(), 0, true});
    parse();
    extents_[number].last = tokens_.line_before();
  }

  /// An expression or a declaration; what begins another statement ends it, too.
  void to_semicolon() {
    static const std::set<std::string_view> kBegin{"for", "while", "do", "if", "switch", "case"};
    bool is_scope = false;
    for (bool first = true; good_ && !tokens_.now().empty(); first = false) {
      const std::string_view word = tokens_.now();
      if (word == "}" || (!first && kBegin.contains(word)))
        break;
      if (word == ";") {
        tokens_.next();
        return;
      }
      expression(is_scope);
    }
    good_ = good_ && (tokens_.now() != "}" || open_blocks_ > 0);
  }

  /// One token, or a bracket with all in it. `is_scope`: a brace now opens a lambda or a class.
  void expression(bool& is_scope) {
    const std::string_view word = tokens_.now();
    if (word == "(") {
      group(")");
    } else if (word == "[") {
      group("]");
      is_scope = true;
    } else if (word == "{") {
      const std::int32_t first = tokens_.line();
      const std::size_t number = extents_.size();
      if (is_scope)
        extents_.push_back({first, 0, false});
      block();
      if (is_scope)
        extents_[number].last = tokens_.line_before();
      is_scope = false;
    } else {
      if (word == "struct" || word == "class" || word == "union")
        is_scope = true;
      else if (word == "," || word == "=" || word == ".")
        is_scope = false;
      good_ = good_ && word != ")" && word != "]";
      tokens_.next();
    }
  }

  void group(std::string_view close) {
    const Depth depth(*this);
    tokens_.next();
    bool is_scope = false;
    while (good_ && !tokens_.now().empty() && tokens_.now() != close) {
      good_ = good_ && tokens_.now() != "}";
      if (good_)
        expression(is_scope);
    }
    expect(close);
  }

  void block() {
    const Depth depth(*this);
    tokens_.next();
    ++open_blocks_;
    while (good_ && !tokens_.now().empty() && tokens_.now() != "}")
      statement();
    --open_blocks_;
    expect("}");
  }

  void expect(std::string_view word) {
    good_ = good_ && tokens_.now() == word;
    tokens_.next();
  }

  struct Depth {
    explicit Depth(Parser& of) : parser(of) {
      if (++parser.depth_ > kDepthMax)
        parser.good_ = false;
    }
    ~Depth() { --parser.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;
    Parser& parser;
  };

  Tokens tokens_;
  std::vector<Extent>& extents_;
  int depth_{}, open_blocks_{};
  bool good_{true};
};

CppSource::CppSource(std::string_view text) {
  if (!Parser(text, extents_).parse())
    extents_.clear();
}

std::vector<SourceLoop> CppSource::loops_around(std::int32_t line) const {
  std::vector<SourceLoop> loops;
  for (const Extent& extent : extents_) {
    if (!extent.is_loop && extent.first < line && line < extent.last)
      loops.clear();  // They are around the lambda, not around what it calls.
    else if (extent.is_loop && extent.first <= line && line <= extent.last)
      loops.push_back({extent.first, "", false});
  }
  return loops;
}

}  // namespace lockstep::symbols
