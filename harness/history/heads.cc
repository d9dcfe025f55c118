#include "harness/history/heads.h"

#include <algorithm>
#include <filesystem>

#include "harness/history/byte_source.h"
#include "harness/history/journal_json.h"
#include "harness/history/run_json.h"

namespace fs = std::filesystem;

namespace lockstep::history {
namespace {

constexpr const char* kFile = "/heads.json";
constexpr std::uint64_t kBytesMax = 1U << 20;
constexpr std::size_t kLinesMax = 64;
constexpr std::size_t kHostsMax = 4096;

Json numbers_of(const RankSet& ranks) {
  Json numbers = Json::array();
  for (const Rank rank : ranks)
    numbers.push_back(rank.value);
  return numbers;
}

Json to_json(const Heads& heads) {
  Json answered = Json::array();
  for (const auto& [name, number] : heads.answered)
    answered.push_back({{"name", name}, {"number", number}});
  std::vector<std::string> doing = heads.doing;
  doing.resize(std::min(doing.size(), kLinesMax));
  return {{"format", "lockstep-heads/1"},
          {"host", heads.host},
          {"beat", heads.beat},
          {"meets_at", heads.meets_at},
          {"world_size", heads.world_size},
          {"ranks", numbers_of(heads.ranks)},
          {"failed", numbers_of(heads.failed)},
          {"still_ms", heads.still_ms},
          {"waits", heads.waits},
          {"doing", doing},
          {"addresses", heads.addresses},
          {"question", heads.question},
          {"again", heads.again},
          {"answered", answered},
          {"verdict", heads.verdict},
          {"ends", heads.ends},
          {"closed", heads.closed}};
}

bool from_json(const Json& json, Heads& heads) {
  Fields fields(json);
  fields.get("host", heads.host);
  fields.get("beat", heads.beat);
  fields.get("meets_at", heads.meets_at);
  fields.get("world_size", heads.world_size);
  fields.get("ranks", heads.ranks);
  fields.get("failed", heads.failed);
  fields.get("still_ms", heads.still_ms);
  fields.get("waits", heads.waits);
  fields.get("doing", heads.doing);
  fields.get("addresses", heads.addresses);
  fields.get("question", heads.question);
  fields.get("again", heads.again);
  fields.each_object("answered", [&](Fields& each) {
    std::string name;
    each.get("name", name);
    each.get("number", heads.answered[name]);
  });
  fields.get("verdict", heads.verdict);
  fields.get("ends", heads.ends);
  fields.get("closed", heads.closed);
  return fields.good();
}

}  // namespace

std::string Heads::name() const { return fs::path(directory).filename().string(); }

Result<void> write_heads(const Heads& heads) {
  return write_file(heads.directory + kFile, dump(to_json(heads)));
}

std::vector<Heads> heads_beside(const std::string& run_directory) {
  std::vector<Heads> found;
  std::error_code failed;
  for (fs::directory_iterator at(fs::path(run_directory).parent_path(), failed), end;
       !failed && at != end && found.size() < kHostsMax; at.increment(failed)) {
    const std::string path = at->path().string();
    if (path == run_directory)
      continue;
    const Result<std::string> text = read_whole(path + kFile, kBytesMax);
    const Json json = text ? Json::parse(*text, nullptr, false) : Json();
    Heads heads{.directory = path};
    if (json.is_object() && from_json(json, heads))
      found.push_back(std::move(heads));
  }
  std::sort(found.begin(), found.end(),
            [](const Heads& a, const Heads& b) { return a.directory < b.directory; });
  return found;
}

bool are_of_one_job(const Heads& one, const Heads& other) {
  return one.world_size == other.world_size && one.meets_at == other.meets_at &&
         !one.meets_at.empty() &&
         std::none_of(other.ranks.begin(), other.ranks.end(),
                      [&](Rank rank) { return one.ranks.contains(rank); });
}

}  // namespace lockstep::history
