// JournalReader: lines to events. Every line is data of unknown origin: caps on length and number,
// no field is believed without its type, and what is not understood is counted and said.
#include <fmt/format.h>

#include <algorithm>

#include "harness/history/journal.h"
#include "harness/history/journal_json.h"

namespace lockstep::history {
namespace {

constexpr std::size_t kLineBytesMax = 8U << 20;
constexpr std::uint64_t kRecordsMax = 4'000'000;
constexpr std::size_t kReadBytes = 256U << 10;
constexpr std::size_t kSentencesMax = 32;

void read(Fields& fields, ProcessStart& event) {
  fields.get("role", event.role);
  fields.get("rank", event.rank);
  fields.get("pid", event.pid);
  fields.get("parent", event.parent);
  fields.get("parent_name", event.parent_name);
  fields.get("command", event.command);
  fields.get("world_size", event.world_size);
  fields.get("meets_at", event.meets_at);
  fields.get("attempt", event.attempt);
  fields.get("task", event.task);
  fields.get("tasks", event.tasks);
}

void read(Fields& fields, ProcessEnd& event) {
  fields.get("role", event.role);
  fields.get("rank", event.rank);
  fields.get("pid", event.pid);
  fields.get("exit_status", event.exit_status);
  fields.get("signal", event.signal);
  fields.get("our_signal", event.our_signal);
  fields.get("our_reason", event.our_reason);
  fields.get("last_line", event.last_line);
  std::string sender;
  fields.get("sender", sender);
  event.sender = sender_of(sender);
  fields.get("asked_ns", event.asked_ns);
}

void read(Fields& fields, Acted& event) {
  fields.get("action", event.action);
  fields.get("rank", event.rank);
  fields.get("pid", event.pid);
  fields.get("reason", event.reason);
}

void read(Fields& fields, StateSample& event) {
  fields.get("rank", event.rank);
  fields.get("pid", event.pid);
  fields.get("head", event.head);
  fields.each_object("threads", [&](Fields& each) {
    ThreadState& thread = event.threads.emplace_back();
    std::string state;
    each.get("tid", thread.tid);
    each.get("state", state);
    each.get("wchan", thread.wchan);
    each.get("switches", thread.context_switches);
    each.get("cpu_ns", thread.cpu_ns);
    each.get("for_own_threads", thread.for_own_threads);
    each.get("for_ever", thread.for_ever);
    each.get("until_ns", thread.until_ns);
    thread.state = state.empty() ? '?' : state[0];
  });
  fields.each_object("children", [&](Fields& each) {
    ChildState& child = event.children.emplace_back();
    std::string state;
    each.get("pid", child.pid);
    each.get("name", child.name);
    each.get("state", state);
    each.get("wchan", child.wchan);
    child.state = state.empty() ? '?' : state[0];
  });
  fields.get("caught_signals", event.caught_signals);
  fields.get("waits_for_child", event.waits_for_child);
  std::vector<std::int32_t> holders;
  fields.get("held_by", holders);
  for (const std::int32_t rank : holders)
    event.held_by.insert(Rank{rank});
}

void read(Fields& fields, StackSample& event) {
  fields.get("rank", event.rank);
  fields.get("pid", event.pid);
  fields.get("tid", event.tid);
  fields.get("frames", event.frames);
  fields.each_object("variables", [&](Fields& each) {
    IntegerVariable& variable = event.variables.emplace_back();
    std::int32_t frame = 0;
    each.get("frame", frame);
    each.get("name", variable.name);
    each.get("value", variable.value);
    variable.frame = static_cast<std::uint32_t>(frame);
  });
  fields.get("handles", event.handles);
  fields.get("raised_at", event.raised_at.frames);
  fields.get("started", event.started_ns);
}

void read(Fields& fields, Request& event) {
  fields.get("role", event.role);
  fields.get("rank", event.rank);
  fields.get("id", event.id);
  fields.get("message", event.message);
}

void read(Fields& fields, Observation& event) {
  fields.get("role", event.role);
  fields.get("rank", event.rank);
  fields.get("name", event.name);
  fields.get("step", event.step);
  fields.get("phase", event.phase);
  fields.get("variant", event.variant);
  fields.get("dtype", event.dtype);
  fields.get("shape", event.shape);
  fields.get("digest", event.digest);
  fields.get("file", event.file);
  fields.get("key", event.key);
}

void read(Fields& fields, Raised& event) {
  fields.get("rank", event.rank);
  fields.get("pid", event.pid);
  fields.get("text", event.text);
  fields.get("found_out", event.found_out);
  fields.get("raised_at", event.raised_at.frames);
}

void read(Fields& fields, Mark& event) { fields.get("name", event.name); }
void read(Fields& fields, Note& event) { fields.get("text", event.text); }

void read(Fields& fields, Leftover& event) {
  fields.get("kind", event.kind);
  fields.get("name", event.name);
  fields.get("pid", event.pid);
  fields.get("rank", event.rank);
  fields.get("parent", event.parent);
  fields.get("parent_name", event.parent_name);
  fields.get("ports", event.ports);
  fields.get("gpus", event.gpus);
  fields.get("bytes", event.bytes);
  fields.each_object("lineage", [&](Fields& each) {
    Ancestor& ancestor = event.lineage.emplace_back();
    each.get("pid", ancestor.pid);
    each.get("started", ancestor.started_ns);
  });
}

void read(Fields& fields, Unwaited& event) {
  fields.get("since", event.since_ns);
  fields.get("pid", event.pid);
  fields.get("name", event.name);
  fields.get("rank", event.rank);
  fields.get("parent", event.parent);
  fields.get("parent_name", event.parent_name);
  fields.get("taken", event.taken);
  fields.get("parent_waits_for", event.parent_waits_for);
}

void read(Fields& fields, Descriptors& event) {
  fields.get("rank", event.rank);
  fields.get("pid", event.pid);
  fields.get("open", event.open);
  fields.get("limit", event.limit);
  fields.each_object("kinds", [&](Fields& each) {
    auto& [kind, count] = event.kinds.emplace_back();
    each.get("kind", kind);
    each.get("count", count);
  });
  fields.each_object("files", [&](Fields& each) {
    auto& [path, count] = event.files.emplace_back();
    each.get("path", path);
    each.get("count", count);
  });
}

void read(Fields& fields, LauncherEnd& event) {
  fields.get("pid", event.pid);
  fields.get("name", event.name);
  fields.get("signal", event.signal);
  fields.get("pids", event.pids);
  fields.get("ranks", event.ranks);
}

void read(Fields& fields, Stranger& event) {
  fields.get("rank", event.rank);
  fields.get("pid", event.pid);
  fields.get("address", event.address);
  fields.get("other", event.other);
  fields.get("name", event.name);
}

void read(Fields& fields, HostSilent& event) {
  fields.get("host", event.host);
  fields.get("since", event.since_ns);
  fields.get("ranks", event.ranks);
}

void read(Fields& fields, Unacknowledged& event) {
  fields.get("rank", event.rank);
  fields.get("pid", event.pid);
  fields.get("address", event.address);
  fields.get("host", event.host);
  fields.get("bytes", event.bytes);
  fields.get("tries", event.tries);
  fields.get("ranks", event.ranks);
}

template <class Event>
bool take(Fields& fields, std::uint64_t record, std::uint64_t at_ns, std::vector<Event>& events) {
  Event event;
  read(fields, event);
  event.record = record;
  event.at_ns = at_ns;
  if (fields.good())
    events.push_back(std::move(event));
  return fields.good();
}

/// Joins an answer to its request. One that nobody is waiting for (the second, or unasked) stands
/// alone.
bool take_answer(Fields& fields, std::uint64_t record, std::uint64_t at_ns, Run& run) {
  Request answer;
  read(fields, answer);
  fields.get("asked", answer.at_ns);
  fields.get("outcome", answer.outcome);
  fields.get("text", answer.text);
  fields.get("raised_at", answer.raised_at.frames);
  if (!fields.good())
    return false;
  answer.record = record;
  answer.answered_ns = at_ns;
  const auto asked =
      std::find_if(run.requests.rbegin(), run.requests.rend(), [&](const Request& request) {
        return request.id == answer.id && request.role == answer.role &&
               request.rank == answer.rank;
      });
  if (asked == run.requests.rend() || asked->answered_ns) {
    run.requests.push_back(std::move(answer));
    return true;
  }
  asked->answered_ns = at_ns;
  asked->outcome = std::move(answer.outcome);
  asked->text = std::move(answer.text);
  asked->raised_at = std::move(answer.raised_at);
  return true;
}

/// False: not an event of ours.
bool take_event(const std::string& kind, Fields& fields, std::uint64_t record, std::uint64_t at_ns,
                Run& run) {
  if (kind == "process_start")
    return take(fields, record, at_ns, run.starts);
  if (kind == "process_end")
    return take(fields, record, at_ns, run.ends);
  if (kind == "acted")
    return take(fields, record, at_ns, run.acted);
  if (kind == "state")
    return take(fields, record, at_ns, run.states);
  if (kind == "stack")
    return take(fields, record, at_ns, run.stacks);
  if (kind == "request")
    return take(fields, record, at_ns, run.requests);
  if (kind == "answer")
    return take_answer(fields, record, at_ns, run);
  if (kind == "observation")
    return take(fields, record, at_ns, run.observations);
  if (kind == "raised")
    return take(fields, record, at_ns, run.raised);
  if (kind == "mark")
    return take(fields, record, at_ns, run.marks);
  if (kind == "leftover")
    return take(fields, record, at_ns, run.leftovers);
  if (kind == "unwaited")
    return take(fields, record, at_ns, run.unwaited);
  if (kind == "descriptors")
    return take(fields, record, at_ns, run.descriptors);
  if (kind == "launcher_end")
    return take(fields, record, at_ns, run.launcher_ends);
  if (kind == "stranger")
    return take(fields, record, at_ns, run.strangers);
  if (kind == "host_silent")
    return take(fields, record, at_ns, run.silent_hosts);
  if (kind == "unacknowledged")
    return take(fields, record, at_ns, run.unacknowledged);
  return kind == "note" && take(fields, record, at_ns, run.notes);
}

}  // namespace

JournalReader::JournalReader(std::unique_ptr<ByteSource> source, std::string name)
    : source_(std::move(source)), name_(std::move(name)) {}
JournalReader::~JournalReader() = default;
JournalReader::JournalReader(JournalReader&&) noexcept = default;
JournalReader& JournalReader::operator=(JournalReader&&) noexcept = default;

bool JournalReader::poll(Run& run, bool final) {
  const std::uint64_t before = taken_ + (closed_ ? 1 : 0);
  std::string bytes;
  for (;;) {
    const std::uint64_t size = source_->size();
    bytes.resize(std::min<std::uint64_t>(size - std::min(size, offset_), kReadBytes));
    bytes.resize(source_->read(offset_, std::as_writable_bytes(std::span(bytes))));
    if (bytes.empty())
      break;
    offset_ += bytes.size();
    std::size_t at = 0;
    for (std::size_t end = 0; (end = bytes.find('\n', at)) != std::string::npos; at = end + 1) {
      const std::string_view piece(bytes.data() + at, end - at);
      if (!skipping_ && tail_.empty())
        take_line(run, piece);
      else if (!skipping_)
        take_line(run, tail_ += piece);
      skipping_ = false;
      tail_.clear();
    }
    if (!skipping_)
      tail_.append(bytes, at);
    if (tail_.size() > kLineBytesMax) {
      say(run, fmt::format("a line after record {} is longer than {} bytes", last_, kLineBytesMax));
      ++garbage_;
      skipping_ = true;
      tail_ = {};
    }
  }
  if (final) {
    const bool torn = skipping_ || !tail_.empty();
    if (torn)
      say(run, fmt::format("the line after record {} is torn", last_));
    if (gaps_ > 0)
      say(run, fmt::format("{} records are missing", gaps_));
    if (garbage_ > 0)
      say(run, fmt::format("{} lines are not records", garbage_));
    if (!closed_)
      say(run, fmt::format("there is no closing record; the last is {}", last_));
    run.journal_complete = closed_ && !torn && gaps_ == 0 && garbage_ == 0;
  }
  return taken_ + (closed_ ? 1 : 0) != before;
}

void JournalReader::take_line(Run& run, std::string_view line) {
  const Json json = Json::parse(line, nullptr, false);
  Fields fields(json);
  std::uint64_t number = 0, at_ns = 0, records = 0;
  std::string kind;
  if (json.is_object()) {
    fields.get("n", number);
    fields.get("e", kind);
    fields.get("t", at_ns);
  }
  // Numbers only rise; nothing comes after the closing record.
  if (!json.is_object() || !fields.good() || number <= last_ || closed_ || taken_ >= kRecordsMax) {
    ++garbage_;
    return;
  }
  gaps_ += number - last_ - 1;
  last_ = number;
  if (kind == "closed") {
    fields.get("records", records);
    closed_ = fields.good() && records + 1 == number;
    run.ended_ns = closed_ ? at_ns : 0;
    garbage_ += closed_ ? 0 : 1;
  } else if (take_event(kind, fields, number, at_ns, run)) {
    ++taken_;
  } else {
    ++garbage_;
  }
}

void JournalReader::say(Run& run, const std::string& what) {
  if (run.missing.size() < kSentencesMax)
    run.missing.push_back(fmt::format("{}: {}", name_, what));
}

}  // namespace lockstep::history
