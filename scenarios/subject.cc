#include "scenarios/subject.h"

#include <fmt/format.h>

#include <chrono>
#include <fstream>

#include "harness/launch/host_job.h"
#include "harness/protocol/message.h"

namespace lockstep {
namespace {

using protocol::Json;

constexpr std::chrono::seconds kStartLimit{180};  // Torch from a cold disk.
constexpr std::chrono::seconds kIntroductionLimit{60};
constexpr std::uint64_t kId = 1;
constexpr const char* kKept = "/introduction.json";

std::map<std::string, std::string> texts_of(const Json& object, const char* name) {
  std::map<std::string, std::string> texts;
  const auto at = object.find(name);
  if (at == object.end() || !at->is_object())
    return texts;
  for (const auto& [key, value] : at->items()) {
    if (value.is_string())
      texts[key] = value.get<std::string>();
  }
  return texts;
}

std::string text_of(const Json& object, const char* name) {
  const auto at = object.find(name);
  return at != object.end() && at->is_string() ? at->get<std::string>() : std::string();
}

std::vector<Subject> subjects_in(const Json& fields) {
  std::vector<Subject> subjects;
  const auto listed = fields.find("subjects");
  if (listed == fields.end() || !listed->is_array())
    return subjects;
  for (const Json& one : *listed) {
    if (!one.is_object())
      continue;
    const auto own = one.find("of_pytorch");
    subjects.push_back({.name = text_of(one, "name"),
                        .kind = text_of(one, "kind"),
                        .absent = text_of(one, "absent"),
                        .adapter = text_of(one, "adapter"),
                        .defined_at = text_of(one, "defined_at"),
                        .function = text_of(one, "function"),
                        .offers = texts_of(one, "offers"),
                        .lacks = texts_of(one, "lacks"),
                        .of_pytorch = own != one.end() && *own == true});
  }
  return subjects;
}

// The first line says what is wrong; the rest is the way out.
Error mismatch(const std::string& text) {
  const std::size_t end = text.find('\n');
  return {Error::Kind::kUsage, text.substr(0, end),
          end == std::string::npos ? "" : text.substr(end + 1)};
}

Result<std::vector<Subject>> understood(const std::string& line) {
  const auto answer = protocol::decode_answer(line, kId);
  if (!answer)
    return Error{Error::Kind::kUsage,
                 fmt::format("the subject spoke on the descriptor of the conversation: {}",
                             answer.error().what),
                 "need a subject that leaves descriptors alone which it has not opened"};
  if (answer->outcome != protocol::Answer::Outcome::kOk)
    return mismatch(answer->text);
  std::vector<Subject> subjects = subjects_in(answer->fields);
  if (subjects.empty())
    return Error{Error::Kind::kHost, "the host introduced no subject", ""};
  return subjects;
}

Result<std::string> listen(launch::HostJob& job, const std::string& logs) {
  const auto deadline = std::chrono::steady_clock::now() + kIntroductionLimit;
  while (true) {
    const launch::Event event = job.wait(deadline);
    switch (event.kind) {
      case launch::Event::Kind::kLine:
        return event.text;
      case launch::Event::Kind::kEnded:
        return Error{Error::Kind::kUsage,
                     fmt::format("the subject ends the process that loads it ({})",
                                 event.status.to_string()),
                     fmt::format("its output is in {}", logs)};
      case launch::Event::Kind::kInterrupted:
        return Error{Error::Kind::kInterrupted, "interrupted: " + event.text, ""};
      case launch::Event::Kind::kDeadline:
        return Error{
            Error::Kind::kUsage,
            fmt::format("the subject was not loaded within {} s", kIntroductionLimit.count()),
            fmt::format("need a subject that is loaded in that time; its output is in {}", logs)};
      case launch::Event::Kind::kStop:
      case launch::Event::Kind::kProtocol:
        return Error{Error::Kind::kUsage,
                     fmt::format("the subject broke the conversation of its host: {}", event.text),
                     "need a subject that leaves descriptors alone which it has not opened"};
    }
  }
}

}  // namespace

launch::WarmOptions warm_options(const SubjectChoice& choice, const std::string& log_file) {
  launch::WarmOptions options;
  options.command = choice.command;
  options.environment = choice.environment;
  options.log_file = log_file;
  options.start_limit = kStartLimit;
  return options;
}

Result<std::vector<Subject>> introduce(launch::Supervisor& supervisor, launch::WarmParent& hosts,
                                       const std::string& logs_directory) {
  launch::HostJobOptions options;
  options.logs_directory = logs_directory;
  auto job = launch::HostJob::start(supervisor, options,
                                    {{.role = Role::kReference,
                                      .rank = std::nullopt,
                                      .warm = &hosts,
                                      .environment = {{"LOCKSTEP_ROLE", "introduction"}}}});
  if (!job)
    return job.error();
  const Json hello{
      {"id", kId}, {"message", "hello"}, {"protocol", protocol::kVersion}, {"introduce", true}};
  if (auto sent = (*job)->send(0, protocol::encode(hello)); !sent)
    return sent.error();
  const Result<std::string> line = listen(**job, logs_directory);
  (*job)->end("it has introduced itself");
  if (!line)
    return line.error();
  Result<std::vector<Subject>> subjects = understood(*line);
  if (subjects)
    std::ofstream(logs_directory + kKept) << *line << '\n';  // Who does not find it asks again.
  return subjects;
}

std::optional<std::vector<Subject>> introduced(const std::string& logs_directory) {
  std::ifstream kept(logs_directory + kKept);
  std::string line;
  if (!std::getline(kept, line))
    return std::nullopt;
  Result<std::vector<Subject>> subjects = understood(line);
  return subjects ? std::optional(std::move(*subjects)) : std::nullopt;
}

}  // namespace lockstep
