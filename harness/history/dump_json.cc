// The JSON that PyTorch's recorder writes. Keys are sorted there, so the entries come before the
// groups that they belong to.
#include <fmt/format.h>

#include <istream>
#include <nlohmann/json.hpp>
#include <streambuf>

#include "harness/history/dump_reader.h"

namespace lockstep::history {
namespace {

using Kind = DumpValue::Kind;
using Json = nlohmann::json;

constexpr std::size_t kDepthMax = 16;

class SourceBuffer final : public std::streambuf {
 public:
  explicit SourceBuffer(ByteSource& source) : source_(source), bytes_(256U << 10) {}

 protected:
  int_type underflow() override {
    const std::size_t count = source_.read(offset_, std::as_writable_bytes(std::span(bytes_)));
    offset_ += count;
    setg(bytes_.data(), bytes_.data(), bytes_.data() + count);
    return count == 0 ? traits_type::eof() : traits_type::to_int_type(bytes_.front());
  }

 private:
  ByteSource& source_;
  std::vector<char> bytes_;
  std::uint64_t offset_{};
};

/// What nlohmann's parser calls. False ends it.
class JsonValues final : public nlohmann::json_sax<Json> {
 public:
  explicit JsonValues(const DumpEntries& entries) : entries_(entries) {}

  bool null() override { return add({Kind::kNone, 0}); }
  bool boolean(bool value) override { return add({Kind::kBool, value ? 1 : 0}); }
  bool number_integer(number_integer_t value) override { return add({Kind::kInteger, value}); }
  bool number_unsigned(number_unsigned_t value) override {
    return add({Kind::kInteger, static_cast<std::int64_t>(value)});
  }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override {
    return add({Kind::kReal, 0});
  }
  bool string(string_t& text) override { return add(values_.text(text)); }
  bool binary(binary_t& /*bytes*/) override { return false; }
  bool start_object(std::size_t /*size*/) override { return begin(Kind::kMap); }
  bool start_array(std::size_t /*size*/) override { return begin(Kind::kList); }
  bool end_array() override { return end(); }
  bool end_object() override { return end(); }
  bool key(string_t& text) override { return add(values_.text(text)); }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    position_ = position;
    return false;
  }

  [[nodiscard]] std::size_t position() const { return position_; }
  [[nodiscard]] const std::string& problem() const { return problem_; }
  [[nodiscard]] DumpValue root() const { return root_; }
  [[nodiscard]] const DumpValues& values() const { return values_; }
  [[nodiscard]] const DumpWords& words() const { return words_; }

 private:
  bool add(DumpValue value) {
    if (!open_.empty())
      values_.add(open_.back(), std::span(&value, 1));
    return true;
  }

  bool begin(Kind kind) {
    if (open_.size() >= kDepthMax)
      problem_ = fmt::format("more than {} lists in one another, which no dump has", kDepthMax);
    else if (values_.full())
      problem_ = "it holds more values at one time than a dump can";
    open_.push_back(values_.container(kind));
    return problem_.empty();
  }

  bool end() {
    const DumpValue value = open_.back();
    open_.pop_back();
    if (open_.empty()) {
      root_ = value;
      return true;
    }
    if (!is_entry(value))
      return add(value);
    entries_(words_.entry(value), words_);
    values_.release(value);
    return true;
  }

  [[nodiscard]] bool is_entry(DumpValue value) const {
    if (value.kind != Kind::kMap || open_.size() != 2 || open_[1].kind != Kind::kList)
      return false;
    const auto items = values_.items_of(open_[0]);
    return !items.empty() && values_.text_of(items.back()) == "entries";
  }

  const DumpEntries& entries_;
  DumpValues values_{};
  DumpWords words_{values_};
  std::vector<DumpValue> open_{};
  DumpValue root_{};
  std::size_t position_{};
  std::string problem_{};
};

}  // namespace

Result<DumpHead> read_json_dump(ByteSource& source, const std::string& name,
                                const DumpEntries& entries) {
  SourceBuffer buffer(source);
  std::istream stream(&buffer);
  JsonValues values(entries);
  if (!Json::sax_parse(stream, &values))
    return malformed_dump(name, !values.problem().empty()
                                    ? values.problem()
                                    : fmt::format("byte {}: it is no JSON there, or was cut short",
                                                  values.position()));
  return checked_head(values.words(), values.root(), name);
}

}  // namespace lockstep::history
