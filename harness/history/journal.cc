#include "harness/history/journal.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "harness/base/clock.h"
#include "harness/history/journal_json.h"

namespace lockstep::history {
namespace {

Json with_rank(std::optional<Rank> rank) {
  return rank ? Json{{"rank", rank->value}} : Json::object();
}

void put_ranks(Json& json, const RankSet& ranks) {
  for (const Rank rank : ranks)
    json["ranks"].push_back(rank.value);
}

template <class T>
void set(Json& json, const char* key, const std::optional<T>& value) {
  if (value)
    json[key] = *value;
}

}  // namespace

Result<JournalWriter> JournalWriter::create(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644));
  if (!fd)
    return Error{Error::Kind::kIo, fmt::format("cannot create {}: {}", path, std::strerror(errno)),
                 ""};
  return JournalWriter(std::move(fd), path);
}

Result<void> JournalWriter::write_line(const std::string& kind, std::uint64_t at_ns,
                                       const std::string& json) {
  const std::uint64_t number = ++written_;
  const std::string line = fmt::format(R"({{"n":{},"e":"{}","t":{}{}{})", number, kind, at_ns,
                                       json.size() > 2 ? "," : "", json.substr(1)) +
                           "\n";
  ssize_t wrote = -1;
  do {
    wrote = ::write(fd_.get(), line.data(), line.size());
  } while (wrote < 0 && errno == EINTR);
  if (wrote == static_cast<ssize_t>(line.size())) {
    bytes_ += line.size();
    return {};
  }
  const int error = wrote < 0 ? errno : ENOSPC;
  // Half a line would spoil the next one.
  if (wrote > 0 && ::ftruncate(fd_.get(), static_cast<off_t>(bytes_)) != 0)
    bytes_ += static_cast<std::uint64_t>(wrote);
  Error failure{
      Error::Kind::kIo,
      fmt::format("cannot write record {} of {}: {}", number, path_, std::strerror(error)),
      error == ENOSPC ? "free some space, or choose another place with --run-dir" : ""};
  if (first_error_.empty())
    first_error_ = failure.what;
  return failure;
}

Result<void> JournalWriter::append(const ProcessStart& event) {
  Json json = with_rank(event.rank);
  json["role"] = static_cast<int>(event.role);
  json["pid"] = event.pid;
  if (event.parent != 0) {
    json["parent"] = event.parent;
    json["parent_name"] = event.parent_name;
  }
  if (!event.command.empty())
    json["command"] = event.command;
  if (event.world_size != 0)
    json["world_size"] = event.world_size;
  if (!event.meets_at.empty())
    json["meets_at"] = event.meets_at;
  set(json, "attempt", event.attempt);
  set(json, "task", event.task);
  if (event.task)
    json["tasks"] = event.tasks;
  return write_line("process_start", event.at_ns, dump(json));
}

Result<void> JournalWriter::append(const ProcessEnd& event) {
  Json json = with_rank(event.rank);
  json["role"] = static_cast<int>(event.role);
  json["pid"] = event.pid;
  set(json, "exit_status", event.exit_status);
  set(json, "signal", event.signal);
  set(json, "our_signal", event.our_signal);
  if (!event.our_reason.empty())
    json["our_reason"] = event.our_reason;
  if (!event.last_line.empty())
    json["last_line"] = event.last_line;
  if (event.sender) {
    json["sender"] = text_of(*event.sender);
    json["asked_ns"] = event.asked_ns;
  }
  return write_line("process_end", event.at_ns, dump(json));
}

Result<void> JournalWriter::append(const Acted& event) {
  Json json = with_rank(event.rank);
  json["action"] = event.action;
  json["pid"] = event.pid;
  json["reason"] = event.reason;
  return write_line("acted", event.at_ns, dump(json));
}

Result<void> JournalWriter::append(const StateSample& event) {
  Json json = with_rank(event.rank);
  json["pid"] = event.pid;
  json["head"] = event.head;
  Json& threads = json["threads"] = Json::array();
  for (const ThreadState& thread : event.threads) {
    threads.push_back({{"tid", thread.tid},
                       {"state", std::string(1, thread.state)},
                       {"wchan", thread.wchan},
                       {"switches", thread.context_switches},
                       {"cpu_ns", thread.cpu_ns}});
    if (thread.for_own_threads) {
      threads.back()["for_own_threads"] = true;
      threads.back()["for_ever"] = thread.for_ever;
      if (thread.until_ns)
        threads.back()["until_ns"] = *thread.until_ns;
    }
  }
  for (const ChildState& child : event.children)
    json["children"].push_back({{"pid", child.pid},
                                {"name", child.name},
                                {"state", std::string(1, child.state)},
                                {"wchan", child.wchan}});
  set(json, "caught_signals", event.caught_signals);
  set(json, "waits_for_child", event.waits_for_child);
  for (const Rank rank : event.held_by)
    json["held_by"].push_back(rank.value);
  return write_line("state", event.at_ns, dump(json));
}

Result<void> JournalWriter::append(const StackSample& event) {
  Json json = with_rank(event.rank);
  json["pid"] = event.pid;
  json["tid"] = event.tid;
  json["frames"] = to_json(event.frames);
  for (const IntegerVariable& variable : event.variables)
    json["variables"].push_back(
        {{"frame", variable.frame}, {"name", variable.name}, {"value", variable.value}});
  if (!event.handles.empty()) {
    json["handles"] = event.handles;
    json["raised_at"] = to_json(event.raised_at.frames);
  }
  if (event.started_ns != 0)
    json["started"] = event.started_ns;
  return write_line("stack", event.at_ns, dump(json));
}

Result<void> JournalWriter::append(const Request& event) {
  Json json = with_rank(event.rank);
  json["role"] = static_cast<int>(event.role);
  json["id"] = event.id;
  json["message"] = event.message;
  if (!event.answered_ns)
    return write_line("request", event.at_ns, dump(json));
  json["asked"] = event.at_ns;
  json["outcome"] = event.outcome;
  if (!event.text.empty())
    json["text"] = event.text;
  if (!event.raised_at.frames.empty())
    json["raised_at"] = to_json(event.raised_at.frames);
  return write_line("answer", *event.answered_ns, dump(json));
}

Result<void> JournalWriter::append(const Observation& event) {
  Json json = with_rank(event.rank);
  json["role"] = static_cast<int>(event.role);
  json["name"] = event.name;
  json["step"] = event.step;
  json["phase"] = event.phase;
  if (!event.variant.empty())
    json["variant"] = event.variant;
  json["dtype"] = event.dtype;
  json["shape"] = event.shape;
  json["digest"] = event.digest;
  json["file"] = event.file;
  if (!event.key.empty())
    json["key"] = event.key;
  return write_line("observation", event.at_ns, dump(json));
}

Result<void> JournalWriter::append(const Raised& event) {
  Json json = with_rank(event.rank);
  json["pid"] = event.pid;
  json["text"] = event.text;
  if (!event.found_out.empty())
    json["found_out"] = event.found_out;
  json["raised_at"] = to_json(event.raised_at.frames);
  return write_line("raised", event.at_ns, dump(json));
}

Result<void> JournalWriter::append(const Mark& event) {
  return write_line("mark", event.at_ns, dump(Json{{"name", event.name}}));
}

Result<void> JournalWriter::append(const Note& event) {
  return write_line("note", event.at_ns, dump(Json{{"text", event.text}}));
}

Result<void> JournalWriter::append(const Leftover& event) {
  Json json = with_rank(event.rank);
  json["kind"] = event.kind;
  json["name"] = event.name;
  json["pid"] = event.pid;
  json["parent"] = event.parent;
  json["parent_name"] = event.parent_name;
  if (!event.ports.empty())
    json["ports"] = event.ports;
  if (!event.gpus.empty())
    json["gpus"] = event.gpus;
  if (event.bytes > 0)
    json["bytes"] = event.bytes;
  for (const Ancestor& ancestor : event.lineage)
    json["lineage"].push_back({{"pid", ancestor.pid}, {"started", ancestor.started_ns}});
  return write_line("leftover", event.at_ns, dump(json));
}

Result<void> JournalWriter::append(const Unwaited& event) {
  Json json = with_rank(event.rank);
  json["since"] = event.since_ns;
  json["pid"] = event.pid;
  json["name"] = event.name;
  json["parent"] = event.parent;
  json["parent_name"] = event.parent_name;
  json["taken"] = event.taken;
  set(json, "parent_waits_for", event.parent_waits_for);
  return write_line("unwaited", event.at_ns, dump(json));
}

Result<void> JournalWriter::append(const Descriptors& event) {
  Json json = with_rank(event.rank);
  json["pid"] = event.pid;
  json["open"] = event.open;
  json["limit"] = event.limit;
  for (const auto& [kind, count] : event.kinds)
    json["kinds"].push_back({{"kind", kind}, {"count", count}});
  for (const auto& [path, count] : event.files)
    json["files"].push_back({{"path", path}, {"count", count}});
  return write_line("descriptors", event.at_ns, dump(json));
}

Result<void> JournalWriter::append(const LauncherEnd& event) {
  Json json{{"pid", event.pid}, {"name", event.name}, {"signal", event.signal}};
  json["pids"] = event.pids;
  put_ranks(json, event.ranks);
  return write_line("launcher_end", event.at_ns, dump(json));
}

Result<void> JournalWriter::append(const Stranger& event) {
  Json json = with_rank(event.rank);
  json["pid"] = event.pid;
  json["address"] = event.address;
  json["other"] = event.other;
  json["name"] = event.name;
  return write_line("stranger", event.at_ns, dump(json));
}

Result<void> JournalWriter::append(const HostSilent& event) {
  Json json{{"host", event.host}, {"since", event.since_ns}};
  put_ranks(json, event.ranks);
  return write_line("host_silent", event.at_ns, dump(json));
}

Result<void> JournalWriter::append(const Unacknowledged& event) {
  Json json = with_rank(event.rank);
  json["pid"] = event.pid;
  json["address"] = event.address;
  json["host"] = event.host;
  json["bytes"] = event.bytes;
  json["tries"] = event.tries;
  put_ranks(json, event.ranks);
  return write_line("unacknowledged", event.at_ns, dump(json));
}

Result<void> JournalWriter::close() {
  const std::uint64_t records = written_;
  if (auto closed = write_line("closed", now_ns(), fmt::format(R"({{"records":{}}})", records));
      !closed)
    return closed;
  if (!first_error_.empty())
    return Error{Error::Kind::kIo, first_error_, ""};
  return {};
}

}  // namespace lockstep::history
