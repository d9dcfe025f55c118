#include "harness/protocol/message.h"

namespace lockstep::protocol {
namespace {

Error host_error(std::string what) { return {Error::Kind::kHost, std::move(what), ""}; }

// Enough of a line to recognise it in a message, never all of it.
std::string shown(std::string_view line) {
  constexpr std::size_t kShown = 80;
  std::string text(line.substr(0, kShown));
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e)
      c = '?';
  }
  return line.size() > kShown ? text + "..." : text;
}

Result<Json> parse_object(std::string_view line) {
  Json object = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (object.is_discarded() || !object.is_object())
    return host_error("expected one JSON object on a line, got: " + shown(line));
  const auto id = object.find("id");
  if (id == object.end() || !id->is_number_unsigned())
    return host_error("a line without an unsigned \"id\": " + shown(line));
  return Result<Json>(boost::system::in_place_value, std::move(object));
}

std::string string_field(const Json& object, const char* name) {
  const auto at = object.find(name);
  return at != object.end() && at->is_string() ? at->get<std::string>() : std::string();
}

}  // namespace

std::string encode(const Json& object) {
  return object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Json> decode_request(std::string_view line) {
  Result<Json> object = parse_object(line);
  if (object && string_field(*object, "message").empty())
    return host_error("a request without \"message\": " + shown(line));
  return object;
}

Result<Answer> decode_answer(std::string_view line, std::uint64_t expected_id) {
  Result<Json> object = parse_object(line);
  if (!object)
    return object.error();
  Answer answer;
  answer.id = (*object)["id"].get<std::uint64_t>();
  if (answer.id != expected_id) {
    return host_error("answered id " + std::to_string(answer.id) + " while " +
                      std::to_string(expected_id) + " was asked");
  }
  const std::string outcome = string_field(*object, "outcome");
  if (outcome == "ok")
    answer.outcome = Answer::Outcome::kOk;
  else if (outcome == "unsupported")
    answer.outcome = Answer::Outcome::kUnsupported;
  else if (outcome == "refused")
    answer.outcome = Answer::Outcome::kRefused;
  else if (outcome == "failed")
    answer.outcome = Answer::Outcome::kFailed;
  else
    return host_error("outcome must be ok, unsupported, refused or failed, got: " + shown(line));
  answer.text = string_field(*object, "text");
  answer.fields = std::move(*object);
  return answer;
}

Json ok_answer(std::uint64_t id) { return Json{{"id", id}, {"outcome", "ok"}}; }

Json error_answer(std::uint64_t id, std::string_view outcome, std::string_view text) {
  return Json{{"id", id}, {"outcome", outcome}, {"text", text}};
}

Result<void> LineBuffer::append(std::string_view bytes, std::vector<std::string>& lines) {
  std::size_t from = 0;
  for (std::size_t at = bytes.find('\n'); at != std::string_view::npos;
       at = bytes.find('\n', from)) {
    partial_.append(bytes.substr(from, at - from));
    from = at + 1;
    if (partial_.size() > kLineBytesMax)
      return host_error("a line of more than 1 MiB");
    lines.push_back(std::move(partial_));
    partial_.clear();
  }
  partial_.append(bytes.substr(from));
  if (partial_.size() > kLineBytesMax)
    return host_error("a line of more than 1 MiB");
  return {};
}

}  // namespace lockstep::protocol
