#include "harness/history/follower.h"

#include <filesystem>

#include "harness/history/rank_places.h"
#include "harness/history/run_files.h"

namespace fs = std::filesystem;

namespace lockstep::history {

Follower::Follower(std::string live_directory, std::string journal, Plan plan,
                   std::size_t collectives_max)
    : live_directory_(std::move(live_directory)),
      journal_path_(std::move(journal)),
      collectives_max_(collectives_max) {
  run_.plan = std::move(plan);
  run_.live = true;
}

bool Follower::poll() {
  bool news = find_files();
  for (std::size_t i = 0; i < readers_.size(); ++i) {
    readers_[i]->swap(run_.processes[i]);
    const auto read = readers_[i]->poll(false);
    readers_[i]->swap(run_.processes[i]);
    news = read_watched(i) || news;
    news = news || (read && *read);  // Not a history yet: its header is being written.
  }
  if (!journal_ && !journal_path_.empty()) {
    if (auto source = FileSource::open(journal_path_))
      journal_.emplace(std::move(*source), "lockstep.jsonl");
  }
  news |= journal_ && journal_->poll(run_, false);
  if (news)
    settle_places(run_);
  return news;
}

/// What lies beside a history, once there is anything.
bool Follower::read_watched(std::size_t i) {
  Watching& watching = watching_[i];
  if (!watching.reader) {
    std::unique_ptr<ByteSource> source =
        watch_beside(live_directory_ + "/" + run_.processes[i].file);
    if (source == nullptr)
      return false;
    watching.reader.emplace(std::move(source));
    watching.values = std::make_shared<WatchedValues>();
  }
  run_.processes[i].watched = watching.values;
  return watching.reader->poll(*watching.values);
}

bool Follower::find_files() {
  bool news = false;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(live_directory_, ignored)) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() != kHistory || known_.count(name) != 0)
      continue;
    auto source = FileSource::open(entry.path().string());
    if (!source)
      continue;
    known_.emplace(name, readers_.size());
    readers_.push_back(std::make_unique<ProcessReader>(std::move(*source), name, collectives_max_));
    watching_.emplace_back();
    run_.processes.emplace_back();
    readers_.back()->swap(run_.processes.back());
    news = true;
  }
  return news;
}

std::optional<Head> Follower::head(std::int32_t pid) {
  std::optional<Head> sum;
  for (std::size_t i = 0; i < readers_.size(); ++i) {
    if (run_.processes[i].pid != pid)
      continue;
    const Head head = readers_[i]->read_head();
    Head& total = sum ? *sum : sum.emplace();
    total.records += head.records;
    total.events += head.events;
  }
  return sum;
}

}  // namespace lockstep::history
