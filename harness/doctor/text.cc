#include "harness/doctor/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/base/version.h"
#include "harness/report/finding_text.h"
#include "harness/report/text.h"

namespace lockstep::doctor {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kWordWidth = 7;  // "warning"

report::Paint paint_of(Level level) {
  switch (level) {
    case Level::kWell:
      return report::Paint::kGood;
    case Level::kStops:
      return report::Paint::kBad;
    case Level::kWarning:
      return report::Paint::kDoubt;
    case Level::kUnseen:
      break;
  }
  return report::Paint::kDim;
}

}  // namespace

std::string render_text(const std::vector<Item>& items, const HumanOptions& options) {
  std::string text = fmt::format("lockstep {}  this host, as ranks would find it\n\n", kVersion);
  std::size_t name_width = 0;
  for (const Item& item : items)
    name_width = std::max(name_width, item.name.size());
  const std::size_t indent = 2 + kWordWidth + 2 + name_width + 2;
  const auto add = [&](const std::string& begin, const std::string& words) {
    const std::size_t room = std::max<std::size_t>(options.width, indent + 30) - indent;
    std::string first = begin;
    for (const std::string& line :
         report::wrap(report::printable(words, options.unicode), room, 0)) {
      text += fmt::format("{:<{}}{}\n", first, first.empty() ? indent : 0, line);
      first.clear();
    }
  };
  for (const Item& item : items) {
    const std::string_view word = name_of(item.level);
    const std::string padding(kWordWidth - word.size(), ' ');
    add(fmt::format("  {}{}  {:<{}}  ", report::painted(word, paint_of(item.level), options),
                    padding, item.name, name_width),
        item.have);
    if (!item.need.empty())
      add("", "need: " + item.need);
    if (!item.to_do.empty())
      add("", "do:   " + item.to_do);
  }
  const auto count = [&](Level level) {
    return std::count_if(items.begin(), items.end(),
                         [&](const Item& item) { return item.level == level; });
  };
  text +=
      fmt::format("\n{} of {} would stop a job, {} warnings, {} not seen\n", count(Level::kStops),
                  items.size(), count(Level::kWarning), count(Level::kUnseen));
  return text;
}

std::string render_json(const std::vector<Item>& items) {
  Json list = Json::array();
  for (const Item& item : items)
    list.push_back({{"name", item.name},
                    {"level", name_of(item.level)},
                    {"have", item.have},
                    {"need", item.need},
                    {"do", item.to_do}});
  const Json document = {{"schema", "lockstep-doctor/1"},
                         {"lockstep", kVersion},
                         {"stops_a_job", stops_a_job(items)},
                         {"items", std::move(list)}};
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::doctor
