// Events of the journal as JSON and back. Included by the journal's .cc files only.
#pragma once

#include <concepts>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "harness/history/run.h"

namespace lockstep::history {

using Json = nlohmann::json;

/// Invalid UTF-8 (out of a program's messages) is replaced, never thrown at.
inline std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Reads typed fields of an object. Absent fields keep their default; one of the wrong type makes
/// it not good.
class Fields {
 public:
  explicit Fields(const Json& object) : object_(object) {}
  [[nodiscard]] bool good() const { return good_; }

  void get(const char* key, std::string& value) {
    if (const Json* at = find(key, &Json::is_string))
      value = at->get_ref<const std::string&>();
  }
  void get(const char* key, std::uint64_t& value) {
    if (const Json* at = find(key, &Json::is_number_unsigned))
      value = at->get<std::uint64_t>();
  }
  void get(const char* key, std::int64_t& value) {
    if (const Json* at = find(key, &Json::is_number_integer))
      value = at->get<std::int64_t>();
  }
  void get(const char* key, bool& value) {
    if (const Json* at = find(key, &Json::is_boolean))
      value = at->get<bool>();
  }
  void get(const char* key, std::int32_t& value) {
    std::int64_t wide = value;
    get(key, wide);
    good_ = good_ && wide >= INT32_MIN && wide <= INT32_MAX;
    value = static_cast<std::int32_t>(wide);
  }
  template <class T>
  void get(const char* key, std::optional<T>& value) {
    if (object_.contains(key))
      get(key, value.emplace());
  }
  void get(const char* key, Rank& value) { get(key, value.value); }
  void get(const char* key, RankSet& ranks) {
    std::vector<std::int32_t> numbers;
    get(key, numbers);
    for (const std::int32_t number : numbers)
      ranks.insert(Rank{number});
  }
  void get(const char* key, Role& value) {
    std::int32_t number = 0;
    get(key, number);
    good_ = good_ && number >= 0 && number <= static_cast<int>(Role::kOther);
    if (good_)
      value = static_cast<Role>(number);
  }
  void get(const char* key, std::vector<std::string>& value) {
    each(key, [&](const Json& item) {
      if (item.is_string())
        value.push_back(item.get<std::string>());
      else
        good_ = false;
    });
  }
  template <std::signed_integral T>
  void get(const char* key, std::vector<T>& value) {
    each(key, [&](const Json& item) {
      if (item.is_number_integer())
        value.push_back(item.get<T>());
      else
        good_ = false;
    });
  }
  /// Calls `take` with each item of an array.
  template <class Take>
  void each(const char* key, Take take) {
    const Json* const at = find(key, &Json::is_array);
    if (at == nullptr)
      return;
    for (const Json& item : *at)
      take(item);
  }
  /// Calls `take` with the fields of each object of an array, which holds nothing else.
  template <class Take>
  void each_object(const char* key, Take take) {
    each(key, [&](const Json& item) {
      good_ = good_ && item.is_object();
      if (!good_)
        return;
      Fields fields(item);
      take(fields);
      good_ = good_ && fields.good();
    });
  }
  void get(const char* key, std::vector<Frame>& value) {
    each_object(key, [&](Fields& fields) {
      Frame& frame = value.emplace_back();
      fields.get("module", frame.module);
      fields.get("offset", frame.offset);
      fields.get("file", frame.file);
      fields.get("line", frame.line);
      fields.get("function", frame.function);
      fields.get("inlined_into", frame.inlined_into);
      fields.get("in_finally", frame.in_finally);
      fields.each_object("loops", [&](Fields& loop) {
        loop.get("line", frame.loops.emplace_back().line);
        loop.get("variable", frame.loops.back().variable);
        loop.get("runs_out", frame.loops.back().runs_out);
      });
    });
  }

 private:
  const Json* find(const char* key, bool (Json::*is)() const noexcept) {
    const auto at = object_.find(key);
    if (at == object_.end())
      return nullptr;
    if (!((*at).*is)()) {
      good_ = false;
      return nullptr;
    }
    return &*at;
  }

  const Json& object_;
  bool good_{true};
};

inline Json to_json(const std::vector<Frame>& frames) {
  Json list = Json::array();
  for (const Frame& frame : frames) {
    list.push_back({{"module", frame.module},
                    {"offset", frame.offset},
                    {"file", frame.file},
                    {"line", frame.line},
                    {"function", frame.function}});
    if (!frame.inlined_into.empty())
      list.back()["inlined_into"] = frame.inlined_into;
    if (frame.in_finally)
      list.back()["in_finally"] = true;
    for (const SourceLoop& loop : frame.loops) {
      Json& each =
          list.back()["loops"].emplace_back(Json{{"line", loop.line}, {"variable", loop.variable}});
      if (loop.runs_out)
        each["runs_out"] = true;
    }
  }
  return list;
}

}  // namespace lockstep::history
