// Values of a dump of PyTorch's Flight Recorder while it is read, whatever its format. Entries are
// handed on as soon as they are complete and forgotten: only what is shared stays.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "harness/history/vocabulary.h"

namespace lockstep::history {

/// A value: a number, a text, or a list or map that a DumpValues holds.
struct DumpValue {
  enum class Kind : std::uint8_t {
    kNone,
    kBool,
    kInteger,
    kReal,
    kText,
    kList,   ///< And tuples.
    kMap,    ///< Key, value, key, value.
    kTaken,  ///< An entry that was handed on.
  };
  Kind kind{};
  std::int64_t number{};  ///< Of lists, maps and texts: where the DumpValues has it.

  [[nodiscard]] bool is_text() const { return kind == Kind::kText; }
};

/// Texts are there once each; containers until they are released.
class DumpValues {
 public:
  static constexpr std::size_t kContainersMax = 4U << 20;  ///< At one time.
  static constexpr std::size_t kTextsMax = 4U << 20;

  DumpValue text(std::string_view text);
  DumpValue container(DumpValue::Kind kind);
  [[nodiscard]] bool full() const { return live_ > kContainersMax || texts_.size() > kTextsMax; }

  [[nodiscard]] std::string_view text_of(DumpValue value) const;
  [[nodiscard]] std::span<const DumpValue> items_of(DumpValue value) const;
  void add(DumpValue to, std::span<const DumpValue> items);
  /// It has another user besides the one who holds it: it stays.
  void share(DumpValue value);
  [[nodiscard]] bool is_shared(DumpValue value) const;
  /// It and everything in it that nobody shares.
  void release(DumpValue value);

 private:
  struct Container {
    std::vector<DumpValue> items{};
    bool shared{};
  };
  std::deque<std::string> texts_{};
  std::unordered_map<std::string_view, std::int64_t> text_ids_{};
  std::deque<Container> containers_{};
  std::vector<std::int64_t> free_{};
  std::vector<DumpValue> releasing_{};
  std::size_t live_{};
};

/// One call, as the recorder of its rank tells it.
struct DumpEntry {
  enum class State : std::uint8_t { kUnknown, kScheduled, kStarted, kCompleted };
  std::int64_t record{-1};
  std::int64_t group_id{-1};
  std::int64_t seq{-1}, p2p_seq{-1};
  std::string_view group{}, description{};
  std::string_view name{};  ///< "nccl:all_reduce".
  std::uint64_t numel_in{}, numel_out{}, counts_hash{};
  DType dtype{};
  State state{};
  bool retired{}, is_p2p{};
  std::int64_t created_ns{}, started_ns{}, completed_ns{};  ///< 0: not told.
  std::int64_t timeout_ms{-1};
  DumpValue frames{};  ///< Innermost first.
};

struct DumpFrame {
  std::string_view function{}, file{};
  std::int64_t line{};
};

/// What a dump says besides its entries.
struct DumpHead {
  struct Config {
    std::string name{}, description{};
    std::vector<std::int32_t> ranks{};
  };
  std::string version{};
  std::vector<Config> groups{};
};

/// Turns maps of the two formats into entries and a head. What has another type than it should
/// counts as not told.
class DumpWords {
 public:
  explicit DumpWords(DumpValues& values) : values_(values) {}

  [[nodiscard]] DumpEntry entry(DumpValue map) const;
  [[nodiscard]] DumpHead head(DumpValue root) const;
  [[nodiscard]] std::vector<DumpFrame> frames(DumpValue list) const;
  /// Equal for lists of the same shared frames; 0: they are not shared.
  [[nodiscard]] std::uint64_t key_of_frames(DumpValue list) const;
  /// The value of a key of a map; none if it is not there.
  [[nodiscard]] DumpValue at(DumpValue map, std::string_view key) const;

 private:
  enum class Field : std::uint8_t;
  [[nodiscard]] Field field_of(DumpValue key) const;
  [[nodiscard]] std::int64_t integer(DumpValue value, std::int64_t otherwise) const;
  [[nodiscard]] std::uint64_t elements(DumpValue sizes, std::uint64_t& hash) const;
  [[nodiscard]] DType dtype(DumpValue list) const;
  void set(DumpEntry& entry, DumpValue key, DumpValue value) const;

  DumpValues& values_;
  mutable std::vector<std::uint8_t> fields_{};  ///< By text; 0: not looked up.
};

/// What reads entries gets each once, with the words that read its frames.
using DumpEntries = std::function<void(const DumpEntry&, const DumpWords&)>;

}  // namespace lockstep::history
