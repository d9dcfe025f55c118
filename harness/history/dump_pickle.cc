// The pickles that PyTorch's recorder writes, by the opcodes of plain data. Those that name a class
// or call something are refused: no dump has one.
#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>

#include "harness/history/dump_reader.h"

namespace lockstep::history {
namespace {

using Kind = DumpValue::Kind;

constexpr std::size_t kBufferBytes = 256U << 10;
constexpr std::size_t kTextBytesMax = 1U << 20;
constexpr std::size_t kStackMax = 16U << 20;

enum Opcode : std::uint8_t {
  kMark = '(',
  kStop = '.',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinUnicode = 'X',
  kAppend = 'a',
  kAppends = 'e',
  kGet = 'h',
  kLongGet = 'j',
  kPut = 'q',
  kLongPut = 'r',
  kSetItem = 's',
  kSetItems = 'u',
  kTuple = 't',
  kEmptyTuple = ')',
  kEmptyList = ']',
  kEmptyDict = '}',
  kBinFloat = 'G',
  kProto = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kTrue = 0x88,
  kFalse = 0x89,
  kLong1 = 0x8A,
  kShortUnicode = 0x8C,
  kMemoize = 0x94,
  kFrame = 0x95,
};

bool runs_code(std::uint8_t opcode) {
  constexpr std::string_view kOpcodes = "ciobRPQ\x81\x82\x83\x84\x92\x93";
  return kOpcodes.find(static_cast<char>(opcode)) != std::string_view::npos;
}

class PickleReader {
 public:
  PickleReader(ByteSource& source, std::string name, const DumpEntries& entries)
      : source_(source), name_(std::move(name)), entries_(entries), buffer_(kBufferBytes) {}

  Result<DumpHead> read() {
    while (problem_.empty() && !stopped_)
      step();
    if (!problem_.empty())
      return malformed_dump(name_, fmt::format("byte {}: {}", opcode_at_, problem_));
    if (stack_.size() != 1 || !marks_.empty())
      return malformed_dump(name_, "it does not end with one value");
    take_the_rest(values_, words_, stack_.front(), entries_);
    return checked_head(words_, stack_.front(), name_);
  }

 private:
  void fail(std::string what) {
    if (problem_.empty())
      problem_ = std::move(what);
  }

  /// The next bytes, or nullptr at the end of the file.
  const std::byte* take(std::size_t bytes) {
    if (end_ - begin_ < bytes && !refill(bytes)) {
      fail("the file ends here, in the middle of a value: it was cut short");
      return nullptr;
    }
    const std::byte* const at = buffer_.data() + begin_;
    begin_ += bytes;
    return at;
  }

  bool refill(std::size_t bytes) {
    if (buffer_.size() < bytes)
      buffer_.resize(bytes);
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    const std::size_t more =
        source_.read(offset_, std::span(buffer_.data() + end_, buffer_.data() + buffer_.size()));
    offset_ += more;
    end_ += more;
    return end_ >= bytes;
  }

  template <class Number>
  Number number() {
    Number value{};
    if (const std::byte* const at = take(sizeof value))
      std::memcpy(&value, at, sizeof value);
    return value;
  }

  void push(DumpValue value) {
    if (stack_.size() >= kStackMax || values_.full())
      return fail("it holds more values at one time than a dump can");
    stack_.push_back(value);
  }
  void push_integer(std::int64_t value) { push({Kind::kInteger, value}); }

  void push_text(std::size_t bytes) {
    if (bytes > kTextBytesMax)
      return fail(fmt::format("a text of {} bytes, which no dump has", bytes));
    if (const std::byte* const at = take(bytes))
      push(values_.text({reinterpret_cast<const char*>(at), bytes}));
  }

  void push_long() {
    const auto bytes = number<std::uint8_t>();
    if (bytes > sizeof(std::int64_t))
      return fail(fmt::format("an integer of {} bytes, which no dump has", bytes));
    const std::byte* const at = take(bytes);
    if (at == nullptr)
      return;
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes; ++i)
      value |= static_cast<std::uint64_t>(at[i]) << (8 * i);
    const unsigned unused = 64 - 8U * bytes;
    if (bytes > 0 && unused > 0)
      value = static_cast<std::uint64_t>(static_cast<std::int64_t>(value << unused) >> unused);
    push_integer(static_cast<std::int64_t>(value));
  }

  void push_float() {
    std::uint64_t bits = __builtin_bswap64(number<std::uint64_t>());
    push({Kind::kReal, std::bit_cast<std::int64_t>(bits)});
  }

  /// Values since the last mark, which goes.
  std::size_t pop_mark() {
    if (marks_.empty()) {
      fail("the end of a list without its beginning");
      return stack_.size();
    }
    const std::size_t at = marks_.back();
    marks_.pop_back();
    return at;
  }

  /// From `first` on the stack, into the container before it.
  void gather(std::size_t first, Kind kind) {
    if (!problem_.empty())
      return;
    const std::size_t fence = marks_.empty() ? 0 : marks_.back();
    if (first < fence + 1 || first > stack_.size() || stack_[first - 1].kind != kind)
      return fail("items for something that is no list or map");
    if (kind == Kind::kMap && (stack_.size() - first) % 2 != 0)
      return fail("a key without a value");
    values_.add(stack_[first - 1], std::span(stack_).subspan(first));
    stack_.resize(first);
    if (kind == Kind::kMap && is_entry(first - 1))
      take_entry();
  }

  /// A map in the list under "entries" of the root.
  [[nodiscard]] bool is_entry(std::size_t at) const {
    return marks_.size() == 2 && at >= marks_[1] && marks_[1] >= 2 &&
           stack_[marks_[1] - 1].kind == Kind::kList &&
           values_.text_of(stack_[marks_[1] - 2]) == "entries";
  }

  void take_entry() {
    entries_(words_.entry(stack_.back()), words_);
    values_.release(stack_.back());
    stack_.back() = {Kind::kTaken, 0};
  }

  void tuple_of(std::size_t first) {
    const std::size_t fence = marks_.empty() ? 0 : marks_.back();
    if (!problem_.empty() || first > stack_.size() || first < fence)
      return fail("a tuple without its items");
    const DumpValue tuple = values_.container(Kind::kList);
    values_.add(tuple, std::span(stack_).subspan(first));
    stack_.resize(first);
    push(tuple);
  }

  void tuple_of_last(std::size_t count) {
    if (stack_.size() < count)
      return fail("a tuple without its items");
    tuple_of(stack_.size() - count);
  }

  void put(std::size_t index) {
    if (stack_.empty() || index > 2 * memo_.size() + 1024)
      return fail("a shared value out of order");
    if (index >= memo_.size())
      memo_.resize(index + 1);
    values_.share(stack_.back());
    memo_[index] = stack_.back();
  }

  void get(std::size_t index) {
    if (index >= memo_.size() || memo_[index].kind == Kind::kTaken)
      return fail("a shared value that was not there before");
    push(memo_[index]);
  }

  void step() {
    opcode_at_ = offset_ - (end_ - begin_);
    const auto opcode = number<std::uint8_t>();
    if (problem_.empty() && !plain(opcode) && !container(opcode))
      fail(
          runs_code(opcode)
              ? fmt::format("opcode {:#04x} of the pickle can run code, and no dump has it", opcode)
              : fmt::format("opcode {:#04x} of the pickle, which no dump has", opcode));
  }

  /// Numbers, texts and what is shared. False: another opcode.
  bool plain(std::uint8_t opcode) {
    switch (opcode) {
      case kProto:
        if (const auto protocol = number<std::uint8_t>(); protocol > 5)
          fail(fmt::format("protocol {} of pickle, need 2 to 5", protocol));
        return true;
      case kFrame:
        number<std::uint64_t>();
        return true;
      case kNone:
        push({Kind::kNone, 0});
        return true;
      case kTrue:
      case kFalse:
        push({Kind::kBool, opcode == kTrue ? 1 : 0});
        return true;
      case kBinInt:
        push_integer(number<std::int32_t>());
        return true;
      case kBinInt1:
        push_integer(number<std::uint8_t>());
        return true;
      case kBinInt2:
        push_integer(number<std::uint16_t>());
        return true;
      case kLong1:
        push_long();
        return true;
      case kBinFloat:
        push_float();
        return true;
      case kBinUnicode:
        push_text(number<std::uint32_t>());
        return true;
      case kShortUnicode:
        push_text(number<std::uint8_t>());
        return true;
      default:
        return false;
    }
  }

  bool container(std::uint8_t opcode) {
    switch (opcode) {
      case kMark:
        marks_.push_back(stack_.size());
        if (marks_.size() > kStackMax)
          fail("it holds more values at one time than a dump can");
        return true;
      case kStop:
        stopped_ = true;
        return true;
      case kEmptyList:
      case kEmptyTuple:
        push(values_.container(Kind::kList));
        return true;
      case kEmptyDict:
        push(values_.container(Kind::kMap));
        return true;
      case kAppend:
        gather(stack_.empty() ? 0 : stack_.size() - 1, Kind::kList);
        return true;
      case kAppends:
        gather(pop_mark(), Kind::kList);
        return true;
      case kSetItem:
        gather(stack_.size() < 2 ? 0 : stack_.size() - 2, Kind::kMap);
        return true;
      case kSetItems:
        gather(pop_mark(), Kind::kMap);
        return true;
      case kTuple:
        tuple_of(pop_mark());
        return true;
      case kTuple1:
      case kTuple2:
      case kTuple3:
        tuple_of_last(1U + opcode - kTuple1);
        return true;
      case kGet:
        get(number<std::uint8_t>());
        return true;
      case kLongGet:
        get(number<std::uint32_t>());
        return true;
      case kPut:
        put(number<std::uint8_t>());
        return true;
      case kLongPut:
        put(number<std::uint32_t>());
        return true;
      case kMemoize:
        put(memo_.size());
        return true;
      default:
        return false;
    }
  }

  ByteSource& source_;
  std::string name_;
  const DumpEntries& entries_;
  DumpValues values_{};
  DumpWords words_{values_};
  std::vector<std::byte> buffer_;
  std::size_t begin_{}, end_{};
  std::uint64_t offset_{};  ///< Of the end of the buffer in the file.
  std::uint64_t opcode_at_{};
  std::vector<DumpValue> stack_{}, memo_{};
  std::vector<std::size_t> marks_{};
  std::string problem_{};
  bool stopped_{};
};

}  // namespace

Result<DumpHead> read_pickled_dump(ByteSource& source, const std::string& name,
                                   const DumpEntries& entries) {
  return PickleReader(source, name, entries).read();
}

}  // namespace lockstep::history
