#include "scenarios/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "harness/base/check.h"
#include "harness/base/clock.h"
#include "harness/history/tensor_file.h"
#include "harness/model/group_view.h"

namespace lockstep {
namespace {

using protocol::Answer;
using protocol::Json;

constexpr std::chrono::seconds kAfterLoss{5};

Error ended_early(std::string what) { return {Error::Kind::kHost, std::move(what), ""}; }

std::string_view outcome_word(Answer::Outcome outcome) {
  switch (outcome) {
    case Answer::Outcome::kOk:
      return "ok";
    case Answer::Outcome::kUnsupported:
      return "unsupported";
    case Answer::Outcome::kRefused:
      return "refused";
    case Answer::Outcome::kFailed:
      return "failed";
  }
  return "failed";
}

CallSite raised_at(const Json& fields) {
  CallSite site;
  const auto frames = fields.find("raised_at");
  if (frames == fields.end() || !frames->is_array())
    return site;
  for (const Json& frame : *frames) {
    if (frame.is_object() && frame.value("module", Json()).is_string() &&
        frame.value("offset", Json()).is_number_unsigned()) {
      Frame& added =
          site.frames.emplace_back(Frame{.module = frame["module"], .offset = frame["offset"]});
      // Of an interpreter, whose host knows its lines.
      if (frame.value("line", Json()).is_number_integer() &&
          frame.value("function", Json()).is_string()) {
        added.file = added.module;
        added.line = frame["line"].get<std::int32_t>();
        added.function = frame["function"];
      }
    }
  }
  return site;
}

// "rank/1/REST" -> rank 1, REST; others are left as they are.
std::string without_rank(const std::string& key, std::optional<Rank>& rank) {
  constexpr std::string_view kPrefix = "rank/";
  const std::size_t slash = key.find('/', kPrefix.size());
  std::int32_t value = 0;
  if (key.compare(0, kPrefix.size(), kPrefix) != 0 || slash == std::string::npos ||
      std::from_chars(key.data() + kPrefix.size(), key.data() + slash, value).ptr !=
          key.data() + slash)
    return key;
  rank = Rank{value};
  return key.substr(slash + 1);
}

// "forward_entry/0/buffer/x" -> phase "forward_entry/0", name "buffer/x".
bool split_phase(const std::string& key, std::string& phase, std::string& name) {
  for (const std::string_view prefix : {"forward_entry/", "after_forward/"}) {
    if (key.compare(0, prefix.size(), prefix) != 0)
      continue;
    const std::size_t slash = key.find('/', prefix.size());
    if (slash == std::string::npos)
      return false;
    phase = key.substr(0, slash);
    name = key.substr(slash + 1);
    return true;
  }
  return false;
}

/// " from ranks 0,1 to `step`": who has not answered.
template <class PendingByHost>
std::string silent(const PendingByHost& pending) {
  RankSet ranks;
  std::string message;
  for (const auto& [host, asked] : pending) {
    if (asked.answer || !asked.request.rank)
      continue;
    ranks.insert(*asked.request.rank);
    message = asked.request.message;
  }
  return ranks.empty() ? "" : fmt::format(" from {} to `{}`", words(ranks), message);
}

}  // namespace

Conversation::Conversation(launch::HostJob& job, history::JournalWriter& journal, Plan& plan,
                           const Case& cell, Paths paths, std::chrono::milliseconds request_limit)
    : job_(job),
      journal_(journal),
      plan_(plan),
      cell_(cell),
      paths_(std::move(paths)),
      request_limit_(request_limit) {}

Result<std::size_t> Conversation::send(std::size_t host, Json request) {
  const launch::Host& to = job_.hosts()[host];
  request["id"] = ++last_id_;
  Pending pending;
  pending.request = {.at_ns = now_ns(),
                     .role = to.role,
                     .rank = to.rank,
                     .id = last_id_,
                     .message = request["message"].get<std::string>()};
  if (auto written = journal_.append(pending.request); !written)
    return written.error();
  if (auto sent = job_.send(host, protocol::encode(request)); !sent)
    pending.lost = sent.error().what;
  pending_[host] = std::move(pending);
  return host;
}

void Conversation::lose(std::size_t host, const std::string& why) {
  const auto at = pending_.find(host);
  if (at != pending_.end() && !at->second.answer && at->second.lost.empty())
    at->second.lost = why;
}

void Conversation::take_line(std::size_t host, const std::string& line) {
  const auto at = pending_.find(host);
  Request spoken;
  spoken.role = job_.hosts()[host].role;
  spoken.rank = job_.hosts()[host].rank;
  const bool expected = at != pending_.end() && !at->second.answer && at->second.lost.empty();
  if (expected)
    spoken = at->second.request;
  spoken.answered_ns = now_ns();
  if (!expected) {
    spoken.outcome = "protocol";
    spoken.text = "spoke without being asked";
  } else if (auto answer = protocol::decode_answer(line, spoken.id); !answer) {
    spoken.outcome = "protocol";
    spoken.text = answer.error().what;
    at->second.lost = spoken.text;
  } else {
    spoken.outcome = std::string(outcome_word(answer->outcome));
    spoken.text = answer->text;
    spoken.raised_at = raised_at(answer->fields);
    at->second.answer = std::move(*answer);
  }
  (void)journal_.append(spoken);  // A full disk shows when the journal is closed.
}

Result<void> Conversation::wait_for(const std::vector<std::size_t>& hosts) {
  auto deadline = std::chrono::steady_clock::now() + request_limit_;
  const auto settled = [&] {
    for (const std::size_t host : hosts) {
      const Pending& pending = pending_[host];
      if (!pending.answer && pending.lost.empty())
        return false;
    }
    return true;
  };
  // A rank that is lost is not started again: what its peers make of it is awaited only for so
  // long.
  const auto lost = [&] {
    return std::any_of(pending_.begin(), pending_.end(), [&](const auto& asked) {
      const Pending& pending = asked.second;
      return !pending.lost.empty() ||
             (pending.answer && pending.answer->outcome == Answer::Outcome::kFailed);
    });
  };
  while (!settled()) {
    if (lost())
      deadline = std::min(deadline, std::chrono::steady_clock::now() + kAfterLoss);
    const launch::Event event = job_.wait(deadline);
    switch (event.kind) {
      case launch::Event::Kind::kLine:
        take_line(event.host, event.text);
        break;
      case launch::Event::Kind::kEnded:
        lose(event.host, "it ended");
        break;
      case launch::Event::Kind::kProtocol: {
        Request spoken = pending_[event.host].request;
        spoken.answered_ns = now_ns();
        spoken.outcome = "protocol";
        spoken.text = event.text;
        (void)journal_.append(spoken);
        lose(event.host, event.text);
        break;
      }
      case launch::Event::Kind::kStop:
        return ended_early(event.text);
      case launch::Event::Kind::kInterrupted:
        return Error{Error::Kind::kInterrupted, "interrupted: " + event.text, ""};
      case launch::Event::Kind::kDeadline:
        return Error{
            Error::Kind::kTimeout,
            lost() ? fmt::format("a rank was lost and others did not answer within {} s of it",
                                 kAfterLoss.count())
                   : fmt::format("no answer within {} s{}", request_limit_.count() / 1000,
                                 silent(pending_)),
            ""};
    }
  }
  return {};
}

Result<Conversation::Answers> Conversation::collect(const std::vector<std::size_t>& hosts) {
  if (auto waited = wait_for(hosts); !waited)
    return waited.error();
  Answers answers;
  std::string failed;
  for (const std::size_t host : hosts) {
    Pending& pending = pending_[host];
    const launch::Host& from = job_.hosts()[host];
    const std::string who =
        from.rank ? fmt::format("rank {}", from.rank->value) : std::string("the reference host");
    if (!pending.lost.empty() && failed.empty())
      failed =
          fmt::format("{} did not answer `{}`: {}", who, pending.request.message, pending.lost);
    if (!pending.answer)
      continue;
    if (pending.answer->outcome == Answer::Outcome::kFailed && failed.empty())
      failed =
          fmt::format("{} failed in `{}`: {}", who, pending.request.message, pending.answer->text);
    answers.push_back(std::move(*pending.answer));
  }
  if (!failed.empty())
    return ended_early(failed);
  return answers;
}

std::vector<std::size_t> Conversation::hosts_of(const RankSet& ranks) const {
  std::vector<std::size_t> hosts;
  for (std::size_t host = 0; host < job_.hosts().size(); ++host) {
    const launch::Host& one = job_.hosts()[host];
    if (one.role == Role::kRank && ranks.contains(*one.rank))
      hosts.push_back(host);
  }
  return hosts;
}

Result<Conversation::Answers> Conversation::ask_ranks(const std::function<Json(Rank)>& request) {
  return ask_ranks(RankSet::all(world_size()), request);
}

Result<Conversation::Answers> Conversation::ask_ranks(const RankSet& ranks,
                                                      const std::function<Json(Rank)>& request) {
  for (const Rank rank : ranks) {
    if (auto told = tell(rank, request(rank)); !told)
      return told.error();
  }
  return answers_of(ranks);
}

Result<void> Conversation::tell(Rank rank, Json request) {
  const std::vector<std::size_t> hosts = hosts_of({rank});
  LS_CHECK(!hosts.empty() && "told a rank that the case does not have");
  if (auto sent = send(hosts.front(), std::move(request)); !sent)
    return sent.error();
  return {};
}

Result<Conversation::Answers> Conversation::answers_of(const RankSet& ranks) {
  return collect(hosts_of(ranks));
}

Result<Answer> Conversation::ask_one(Role role, std::optional<Rank> rank, Json request) {
  for (std::size_t host = 0; host < job_.hosts().size(); ++host) {
    if (job_.hosts()[host].role != role || job_.hosts()[host].rank != rank)
      continue;
    if (auto sent = send(host, std::move(request)); !sent)
      return sent.error();
    Result<Answers> answers = collect({host});
    if (!answers)
      return answers.error();
    return std::move(answers->front());
  }
  LS_CHECK(false && "asked a host that the case does not have");
}

Result<Answer> Conversation::ask_rank(Rank rank, Json request) {
  return ask_one(Role::kRank, rank, std::move(request));
}

Result<Answer> Conversation::ask_reference(Json request) {
  return ask_one(Role::kReference, std::nullopt, std::move(request));
}

std::filesystem::path Conversation::tensor_path(const std::string& name) const {
  return paths_.run / "tensors" / (name + ".safetensors");
}

Result<void> Conversation::observe(const std::filesystem::path& file, const Observed& what) {
  auto opened = history::TensorFile::open(file.string());
  if (!opened)
    return opened.error();
  const std::string kept_as = file.lexically_relative(paths_.run).string();
  for (const history::TensorEntry& entry : opened->entries()) {
    Observation seen{.at_ns = now_ns(),
                     .role = what.role,
                     .rank = what.rank,
                     .name = entry.name,
                     .step = what.step,
                     .phase = what.phase,
                     .variant = what.variant,
                     .dtype = entry.dtype,
                     .shape = entry.shape,
                     .digest = entry.digest,
                     .file = kept_as};
    if (split_phase(without_rank(entry.name, seen.rank), seen.phase, seen.name)) {
      seen.key = entry.name;
      if (what.unsynced && seen.phase.compare(0, 13, "forward_entry") == 0)
        seen.phase.insert(13, "_unsynced");
    }
    if (auto written = journal_.append(seen); !written)
      return written;
    observations_.push_back(std::move(seen));
  }
  return {};
}

Result<void> Conversation::mark(const std::string& name) {
  return journal_.append(Mark{.at_ns = now_ns(), .name = name});
}

Result<void> Conversation::bye(bool whole) {
  std::vector<std::size_t> asked;
  for (std::size_t host = 0; host < job_.hosts().size(); ++host) {
    if (auto sent = send(host, Json{{"message", "bye"}, {"whole", whole}}); !sent)
      return sent.error();
    asked.push_back(host);
  }
  if (auto answers = collect(asked); !answers)
    return answers.error();
  const auto deadline = std::chrono::steady_clock::now() + request_limit_;
  const auto alive = [&] {
    for (const launch::Host& host : job_.hosts()) {
      if (!host.ended)
        return true;
    }
    return false;
  };
  while (alive()) {
    const launch::Event event = job_.wait(deadline);
    if (event.kind == launch::Event::Kind::kInterrupted)
      return Error{Error::Kind::kInterrupted, "interrupted: " + event.text, ""};
    if (event.kind == launch::Event::Kind::kDeadline || event.kind == launch::Event::Kind::kStop)
      return ended_early("a host did not exit after bye");
    if (event.kind == launch::Event::Kind::kLine)
      take_line(event.host, event.text);
  }
  return {};
}

}  // namespace lockstep
