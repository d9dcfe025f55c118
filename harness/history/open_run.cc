// Reading a run directory back into a Run.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <tuple>

#include "harness/history/journal.h"
#include "harness/history/rank_places.h"
#include "harness/history/reader.h"
#include "harness/history/run_directory.h"
#include "harness/history/run_files.h"
#include "harness/history/run_json.h"
#include "harness/history/tensor_file.h"
#include "harness/history/watch_reader.h"

namespace fs = std::filesystem;

namespace lockstep::history {
namespace {

constexpr std::uint64_t kJsonBytesMax = 256U << 20;
constexpr std::size_t kOpenTensorFilesMax = 32;

bool is_plain(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("._=+,@-").find(c) != std::string_view::npos;
}

/// One part of a case id as a file name, and back: other characters as %XX, and no "." or "..".
std::string escape(std::string_view part) {
  std::string name;
  for (const char c : part) {
    if (is_plain(c) && !(c == '.' && part.find_first_not_of('.') == std::string_view::npos))
      name += c;
    else
      name += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return name;
}

std::string unescape(std::string_view name) {
  std::string part;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '%' && i + 2 < name.size()) {
      part +=
          static_cast<char>(std::strtoul(std::string(name.substr(i + 1, 2)).c_str(), nullptr, 16));
      i += 2;
    } else {
      part += name[i];
    }
  }
  return part;
}

/// Observed tensors of a run; keeps a few files open, since one holds many tensors.
class Tensors {
 public:
  explicit Tensors(std::string directory) : directory_(std::move(directory)) {}

  Result<Tensor> read(const Observation& seen) {
    const fs::path file = fs::path(seen.file).lexically_normal();
    if (file.empty() || file.is_absolute() || *file.begin() == "..")
      return Error{Error::Kind::kMalformedHistory,
                   fmt::format("{} names a file outside of the run", seen.name), ""};
    auto at = open_.find(file.string());
    if (at == open_.end()) {
      auto opened = TensorFile::open(directory_ + "/" + file.string());
      if (!opened)
        return opened.error();
      if (open_.size() >= kOpenTensorFilesMax)
        open_.clear();
      at = open_.emplace(file.string(), std::move(*opened)).first;
    }
    const TensorEntry* const entry = at->second.find(seen.key.empty() ? seen.name : seen.key);
    if (entry == nullptr || entry->digest != seen.digest)
      return Error{Error::Kind::kMalformedHistory,
                   fmt::format("{}: {} is not what was observed", seen.file, seen.name), ""};
    return at->second.read(*entry);
  }

 private:
  std::string directory_;
  std::map<std::string, TensorFile> open_;
};

/// `<pid>.unseen`: the shim says in a line why the tap did not go into this process.
std::string why_unseen(const fs::path& path) {
  constexpr std::uint64_t kBytesMax = 1 << 14;
  const auto text = read_whole(path.string(), kBytesMax);
  return fmt::format("process {} was not seen inside: {}", path.stem().string(),
                     text ? text->substr(0, text->find('\n')) : text.error().what);
}

/// `<pid>.late`, as shim_devices.c writes it. Frames of Python: position, line, function, file.
LateDevices late_devices(const fs::path& path) {
  LateDevices late;
  std::ifstream file(path);
  late.pid = std::atoi(path.stem().c_str());
  file >> late.at_ns >> std::ws;
  std::getline(file, late.at_start);
  std::getline(file, late.in_force);
  std::getline(file, late.set);
  Frame frame;
  while (file >> frame.offset >> frame.line >> std::ws &&
         std::getline(file, frame.function, '\t') && std::getline(file, frame.module)) {
    frame.file = frame.module;
    late.site.frames.push_back(frame);
  }
  return late;
}

std::shared_ptr<WatchedValues> read_watched(const std::string& history,
                                            std::vector<std::string>& missing) {
  std::unique_ptr<ByteSource> source = watch_beside(history);
  if (source == nullptr)
    return nullptr;
  auto values = std::make_shared<WatchedValues>();
  WatchReader reader(std::move(source));
  reader.poll(*values);
  if (!reader.is_whole())
    missing.push_back(fmt::format("part of what was watched beside {} makes no sense",
                                  fs::path(history).filename().string()));
  return values;
}

void read_processes(const std::string& directory, Run& run) {
  // Names sort the same wherever the files lie, so that a report does not depend on it.
  std::map<std::string, std::string> files;
  const std::string history = directory + "/history";
  for (const std::string& place : {history, history + "/" + kLiveLink, history + "/" + kNow}) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(place, ignored)) {
      if (is_of_a_process(entry.path().filename()))
        files.emplace(entry.path().filename().string(), entry.path().string());
    }
  }
  for (const auto& [name, path] : files) {
    if (fs::path(name).extension() == kUnseen) {
      run.missing.push_back(why_unseen(path));
      continue;
    }
    if (fs::path(name).extension() == kLateDevices) {
      run.late_devices.push_back(late_devices(path));
      continue;
    }
    if (fs::path(name).extension() == kWatched)
      continue;  // Read with the history that it lies beside.
    auto source = FileSource::open(path);
    if (!source) {
      run.missing.push_back(source.error().what);
      continue;
    }
    auto file = read_process(std::move(*source), name);
    if (!file) {
      run.missing.push_back(file.error().what);
      continue;
    }
    run.missing.insert(run.missing.end(), file->missing.begin(), file->missing.end());
    file->process.watched = read_watched(path, run.missing);
    run.processes.push_back(std::move(file->process));
  }
  std::stable_sort(run.processes.begin(), run.processes.end(),
                   [](const Process& a, const Process& b) {
                     const auto key = [](const Process& p) {
                       return std::tuple(p.rank.value_or(Rank{INT32_MAX}), p.opened_ns);
                     };
                     return key(a) < key(b);
                   });
}

void read_journal(const std::string& directory, Run& run) {
  auto source = FileSource::open(directory + "/history/lockstep.jsonl");
  if (!source) {
    run.missing.push_back("lockstep.jsonl: there is no journal of the run");
    return;
  }
  JournalReader(std::move(*source), "lockstep.jsonl").poll(run, true);
}

void read_symbols(const std::string& directory, Run& run) {
  auto text = read_whole(directory + "/symbols.json", kJsonBytesMax);
  if (!text)
    return;  // Positions stay raw.
  const auto identity = [](const Frame& frame) {
    return std::tuple(frame.module, frame.offset, frame.is_python() ? frame.function : "");
  };
  std::map<std::tuple<std::string, std::uint64_t, std::string>, Frame> known;
  for (Frame& frame : symbols_from_json(*text))
    known.emplace(identity(frame), std::move(frame));
  for (Frame* const frame : frames_of(run)) {
    const auto at = known.find(identity(*frame));
    if (at == known.end())
      continue;
    frame->file = at->second.file;
    frame->line = at->second.line;
    frame->function = at->second.function;
    frame->inlined_into = at->second.inlined_into;
    frame->loops = at->second.loops;
    frame->in_finally = at->second.in_finally;
  }
}

}  // namespace

std::string case_path(const std::string& directory, const std::string& case_id) {
  std::string path = directory + "/cases";
  for (std::size_t at = 0; at <= case_id.size();) {
    const std::size_t end = std::min(case_id.find('/', at), case_id.size());
    const std::string part = escape(std::string_view(case_id).substr(at, end - at));
    path += "/" + (part.empty() ? "%" : part);
    at = end + 1;
  }
  return path;
}

std::vector<std::string> case_ids(const std::string& directory) {
  std::vector<std::string> ids;
  const fs::path root = fs::path(directory) / "cases";
  std::error_code error;
  for (auto at = fs::recursive_directory_iterator(root, error); !error && at != fs::end(at);
       at.increment(error)) {
    if (at->path().filename() != "run.json" || at.depth() == 0)
      continue;
    std::string id;
    for (const fs::path& part : at->path().parent_path().lexically_relative(root))
      id += (id.empty() ? "" : "/") + unescape(part.string() == "%" ? "" : part.string());
    ids.push_back(std::move(id));
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::vector<Frame*> frames_of(Run& run) {
  std::vector<Frame*> frames;
  const auto add = [&](std::vector<Frame>& list) {
    for (Frame& frame : list) {
      if (!frame.module.empty())
        frames.push_back(&frame);
    }
  };
  for (Process& process : run.processes) {
    for (CallSite& site : process.sites)
      add(site.frames);
  }
  for (StackSample& sample : run.stacks) {
    add(sample.frames);
    add(sample.raised_at.frames);
  }
  for (Request& request : run.requests)
    add(request.raised_at.frames);
  for (Raised& raised : run.raised)
    add(raised.raised_at.frames);
  for (LateDevices& late : run.late_devices)
    add(late.site.frames);
  return frames;
}

Result<void> write_symbols(const std::string& directory, const std::vector<Frame>& frames) {
  return write_file(directory + "/symbols.json", symbols_to_json(frames));
}

Result<Run> open_run(const std::string& directory) {
  std::error_code error;
  if (!fs::is_directory(directory, error))
    return Error{Error::Kind::kUsage, fmt::format("{} is not a directory", directory),
                 "give the directory of a run, such as .lockstep/<id>"};
  const std::string plan_path = directory + "/run.json";
  if (!fs::exists(plan_path, error))
    return Error{Error::Kind::kUsage, fmt::format("{} is not a run: it has no run.json", directory),
                 "give the directory of a run, such as .lockstep/<id>"};
  auto text = read_whole(plan_path, kJsonBytesMax);
  if (!text)
    return text.error();
  auto plan = plan_from_json(*text, plan_path);
  if (!plan)
    return plan.error();
  Run run;
  run.directory = directory;
  run.plan = std::move(*plan);
  read_processes(directory, run);
  read_journal(directory, run);
  settle_places(run);
  read_symbols(directory, run);
  run.tensor = [tensors = std::make_shared<Tensors>(directory)](const Observation& seen) {
    return tensors->read(seen);
  };
  return run;
}

}  // namespace lockstep::history
