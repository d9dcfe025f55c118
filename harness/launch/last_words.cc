#include "harness/launch/last_words.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>
#include <utility>
#include <vector>

#include "harness/base/library_source.h"
#include "harness/os/kernel_objects.h"
#include "harness/os/proc.h"
#include "harness/os/sockets.h"

namespace lockstep::launch {
namespace {

constexpr std::string_view kTraceback = "Traceback (most recent call last):";
// Follows the line of an exception that PyTorch passes on from a loader's worker, or a replica:
// "ValueError: Caught ValueError in DataLoader worker process 0."
constexpr std::string_view kOriginal = "Original Traceback (most recent call last):";
// Between two tracebacks: `raise ... from`, or what came while the first was handled.
constexpr std::string_view kCause =
    "The above exception was the direct cause of the following exception:";
constexpr std::string_view kContext =
    "During handling of the above exception, another exception occurred:";
constexpr std::string_view kTerminate = "terminate called after throwing an instance of ";
// Its threads were ended under it, or a thread was left unjoined.
constexpr std::string_view kTerminated = "terminate called without an active exception";
constexpr std::size_t kTextMax = 1'000;
constexpr std::size_t kFramesMax = 64;

bool starts_with(std::string_view text, std::string_view start) {
  return text.compare(0, start.size(), start) == 0;
}

// PyTorch puts "[rank1]: " before each line of a traceback.
std::string_view without_rank(std::string_view line) {
  const std::size_t close = starts_with(line, "[rank") ? line.find("]:") : std::string_view::npos;
  if (close == std::string_view::npos)
    return line;
  line.remove_prefix(close + 2);
  if (!line.empty() && line.front() == ' ')
    line.remove_prefix(1);
  return line;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(without_rank(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// `  File "train.py", line 12, in main`
std::optional<Frame> frame_of(std::string_view line) {
  constexpr std::string_view kFile = "  File \"";
  constexpr std::string_view kLine = "\", line ";
  constexpr std::string_view kIn = ", in ";
  const std::size_t after_file = line.find(kLine);
  if (!starts_with(line, kFile) || after_file == std::string_view::npos)
    return std::nullopt;
  Frame frame;
  frame.file = line.substr(kFile.size(), after_file - kFile.size());
  const std::string_view rest = line.substr(after_file + kLine.size());
  std::from_chars(rest.data(), rest.data() + rest.size(), frame.line);
  frame.module = frame.file;
  frame.offset = static_cast<std::uint64_t>(frame.line);  // No more is told of the position.
  if (const std::size_t in = rest.find(kIn); in != std::string_view::npos)
    frame.function = rest.substr(in + kIn.size());
  return frame;
}

/// "RuntimeError: something"; of a message that begins with an empty line its first one with text.
std::string message_from(const std::vector<std::string_view>& lines, std::size_t exception) {
  constexpr std::string_view kBlank = " \t\r";
  const std::string_view line = lines[exception];
  const std::size_t last = line.find_last_not_of(kBlank);
  std::string text(line.substr(0, last + 1));
  for (std::size_t i = exception + 1; text.ends_with(':') && i < lines.size(); ++i) {
    const std::size_t begin = lines[i].find_first_not_of(kBlank);
    if (begin != std::string_view::npos)
      return fmt::format("{} {}", text, lines[i].substr(begin));
  }
  return text;
}

/// "in DataLoader worker process 0", of "ValueError: Caught ValueError in DataLoader worker process
/// 0."
std::string_view where_it_was_caught(std::string_view text) {
  const std::size_t caught = text.find(": Caught ");
  const std::size_t in = text.find(" in ", caught);
  if (caught == std::string_view::npos || in == std::string_view::npos)
    return "elsewhere";
  text.remove_prefix(in + 1);
  return text.substr(0, text.find_last_not_of('.') + 1);
}

using WordsAt = std::pair<LastWords, std::size_t>;

/// What raised, with the frames of who passed it on around its own; `at` if it is not whole.
WordsAt passed_on(LastWords words, WordsAt original, std::size_t at) {
  if (original.first.text.empty())
    return {std::move(words), at};
  std::vector<Frame>& frames = original.first.raised_at.frames;
  frames.insert(frames.end(), words.raised_at.frames.begin(), words.raised_at.frames.end());
  frames.resize(std::min(frames.size(), kFramesMax));
  original.first.text += fmt::format(" ({})", where_it_was_caught(words.text));
  return original;
}

/// The traceback that begins in this line, and the line of its exception.
WordsAt python_words(const std::vector<std::string_view>& lines, std::size_t traceback) {
  LastWords words;
  std::vector<Frame>& frames = words.raised_at.frames;
  for (std::size_t i = traceback + 1; i < lines.size(); ++i) {
    if (std::optional<Frame> frame = frame_of(lines[i])) {
      frames.insert(frames.begin(), std::move(*frame));
      frames.resize(std::min(frames.size(), kFramesMax));
    } else if (!lines[i].empty() && lines[i].front() != ' ') {
      words.text = message_from(lines, i).substr(0, kTextMax);
      if (i + 1 < lines.size() && lines[i + 1] == kOriginal)
        return passed_on(std::move(words), python_words(lines, i + 1), i);
      return {words, i};
    }
  }
  return {words, lines.size()};
}

/// The last line before this one that has text; `lines.size()` if there is none.
std::size_t text_before(const std::vector<std::string_view>& lines, std::size_t at) {
  while (at > 0 && lines[at - 1].empty())
    --at;
  return at == 0 ? lines.size() : at - 1;
}

/// ", train.py:40": the innermost line that is no library's.
std::string place_of(const LastWords& words) {
  const std::vector<Frame>& frames = words.raised_at.frames;
  const auto own = std::find_if(frames.begin(), frames.end(), [](const Frame& frame) {
    return !is_installed_package(frame.file) && !is_python_library(frame.file);
  });
  return own == frames.end()
             ? ""
             : fmt::format(", {}:{}", own->file.substr(own->file.rfind('/') + 1), own->line);
}

/// What was caught has frames only up to the function that caught it: who called that stands in the
/// traceback of what was raised from it there. Nothing is known if it was raised elsewhere.
void add_callers(std::vector<Frame>& frames, const std::vector<Frame>& later) {
  if (frames.empty())
    return;
  const auto catches = std::find_if(later.begin(), later.end(), [&](const Frame& frame) {
    return frame.file == frames.back().file && frame.function == frames.back().function;
  });
  if (catches != later.end())
    frames.insert(frames.end(), std::next(catches), later.end());
  frames.resize(std::min(frames.size(), kFramesMax));
}

/// Of exceptions that were raised from one another the first; what was being handled then is named.
WordsAt chained_words(const std::vector<std::string_view>& lines, std::size_t traceback) {
  WordsAt last = python_words(lines, traceback);
  LastWords words = last.first;
  std::string handled;
  for (std::size_t link = text_before(lines, traceback);
       link < lines.size() && (lines[link] == kCause || lines[link] == kContext);
       link = text_before(lines, traceback)) {
    const auto end = std::make_reverse_iterator(lines.begin());
    const auto before =
        std::find(std::make_reverse_iterator(lines.begin() + static_cast<std::ptrdiff_t>(link)),
                  end, kTraceback);
    if (before == end)
      break;
    traceback = static_cast<std::size_t>(end - before) - 1;
    LastWords earlier = python_words(lines, traceback).first;
    if (lines[link] == kCause && handled.empty()) {
      add_callers(earlier.raised_at.frames, words.raised_at.frames);
      words = std::move(earlier);
    } else {
      handled = earlier.text + place_of(earlier) + (handled.empty() ? "" : "; then ") + handled;
    }
  }
  if (words.text != last.first.text)
    words.text += fmt::format(" (then {})", last.first.text);
  if (!handled.empty())
    words.text += fmt::format(" (while it handled {})", handled);
  words.text = words.text.substr(0, kTextMax);
  return {std::move(words), last.second};
}

/// std::terminate said this line, and nothing of its own: where the line before it is an exception
/// of Python, that had ended the program already, and what aborted came of its ending.
LastWords words_of_terminate(const std::vector<std::string_view>& lines, std::size_t at) {
  const std::size_t before = text_before(lines, at);
  for (std::size_t i = before; before < lines.size() && i-- > 0;) {
    if (lines[i] != kTraceback)
      continue;
    const auto [words, exception] = chained_words(lines, i);
    if (exception == before)
      return words;
    break;
  }
  return {std::string(kTerminated), {}};
}

/// Of a recursion without end the tail has no beginning: it is frames, and then the exception.
std::optional<LastWords> words_of_a_long_traceback(const std::vector<std::string_view>& lines) {
  constexpr std::size_t kLinesOfAFrame = 4;
  for (std::size_t i = 0; i < std::min(kLinesOfAFrame, lines.size()); ++i) {
    if (!frame_of(lines[i]))
      continue;
    LastWords words = python_words(lines, i == 0 ? 0 : i - 1).first;
    return words.text.empty() ? std::nullopt : std::optional(std::move(words));
  }
  return std::nullopt;
}

/// What Python's `warnings` prints: "a.py:3: FutureWarning: words", and after the words, which may
/// have several lines, the line of the source that it is about.
bool begins_a_warning(std::string_view line) {
  constexpr std::string_view kWarning = "Warning: ";
  const std::size_t at = line.find(kWarning);
  const std::size_t type = at == std::string_view::npos ? at : line.rfind(": ", at);
  const std::size_t number = type == std::string_view::npos ? type : line.rfind(':', type - 1);
  return number != std::string_view::npos && number > 0 && number + 1 < type &&
         line.substr(number + 1, type - number - 1).find_first_not_of("0123456789") ==
             std::string_view::npos;
}

bool is_source_line(std::string_view line) {
  return line.size() > 2 && starts_with(line, "  ") && line[2] != ' ';
}

/// Where a warning that ends the text begins; `lines.size()` if none does. A warning is nobody's
/// last word: the program went on.
std::size_t last_warning(const std::vector<std::string_view>& lines) {
  constexpr std::size_t kWordsMax = 12;
  const std::size_t last = text_before(lines, lines.size());
  if (last == lines.size())
    return last;
  if (begins_a_warning(lines[last]))
    return last;
  for (std::size_t i = last; is_source_line(lines[last]) && i > 0 && last - i < kWordsMax; --i) {
    if (i < last && is_source_line(lines[i]))  // That was its line: what follows is another's.
      break;
    if (begins_a_warning(lines[i - 1]))
      return i - 1;
  }
  return lines.size();
}

}  // namespace

std::optional<LastWords> last_words(std::string_view stderr_tail) {
  const std::vector<std::string_view> lines = lines_of(stderr_tail);
  for (std::size_t i = lines.size(); i-- > 0;) {
    if (lines[i] == kTraceback) {
      LastWords words = chained_words(lines, i).first;
      if (!words.text.empty())
        return words;
    }
    if (lines[i] == kTerminated)
      return words_of_terminate(lines, i);
    if (!starts_with(lines[i], kTerminate))
      continue;
    const bool said = i + 1 < lines.size() && starts_with(lines[i + 1], "  what():  ");
    const std::string_view what =
        said ? lines[i + 1].substr(11) : lines[i].substr(kTerminate.size());
    return LastWords{std::string(what.substr(0, kTextMax)), {}};
  }
  return words_of_a_long_traceback(lines);
}

std::string last_line(std::string_view stderr_tail) {
  constexpr std::string_view kBlank = " \t\r\n";
  constexpr std::size_t kLineMax = 200;
  std::vector<std::string_view> lines = lines_of(stderr_tail);
  for (std::size_t at = last_warning(lines); at < lines.size(); at = last_warning(lines)) {
    stderr_tail =
        stderr_tail.substr(0, static_cast<std::size_t>(lines[at].data() - stderr_tail.data()));
    lines.resize(at);
  }
  const std::size_t last = stderr_tail.find_last_not_of(kBlank);
  if (last == std::string_view::npos)
    return "";
  stderr_tail = stderr_tail.substr(0, last + 1);
  const std::size_t before = stderr_tail.find_last_of("\r\n");  // A progress bar ends in "\r".
  const std::string_view line = without_rank(stderr_tail.substr(before + 1));
  return std::string(line.substr(0, kLineMax));
}

std::optional<ErrorTail> kept_error_tail(const std::string& history_directory, std::int32_t pid) {
  constexpr std::size_t kTextBytes = 16384;
  std::uint64_t written = 0, at_ns = 0;
  std::string ring(kTextBytes, '\0');
  std::ifstream file(fmt::format("{}/{}.err", history_directory, pid), std::ios::binary);
  file.read(reinterpret_cast<char*>(&written), sizeof written);
  file.read(reinterpret_cast<char*>(&at_ns), sizeof at_ns);
  file.read(ring.data(), static_cast<std::streamsize>(ring.size()));
  if (!file || written == 0)
    return std::nullopt;
  if (written <= ring.size())
    return ErrorTail{ring.substr(0, written), at_ns};
  std::rotate(ring.begin(), ring.begin() + static_cast<std::ptrdiff_t>(written % ring.size()),
              ring.end());
  return ErrorTail{std::move(ring), at_ns};
}

std::optional<Raised> kept_last_words(const std::string& history_directory, std::int32_t pid,
                                      Rank rank) {
  const std::optional<ErrorTail> said = kept_error_tail(history_directory, pid);
  std::optional<LastWords> words = said ? last_words(said->text) : std::nullopt;
  if (!words)
    return std::nullopt;
  return Raised{.at_ns = said->at_ns,
                .rank = rank,
                .pid = pid,
                .text = words->text,
                .found_out = "",
                .raised_at = std::move(words->raised_at)};
}

bool a_library_ended(const std::string& history_directory, std::int32_t pid) {
  std::error_code ignored;
  return std::filesystem::exists(fmt::format("{}/{}.exits", history_directory, pid), ignored);
}

std::vector<SentSignal> sent_signals(const std::string& history_directory, std::int32_t pid) {
  std::vector<SentSignal> sent;
  for (const std::int32_t target : std::set<std::int32_t>{pid, -pid, -::getpgid(pid)}) {
    std::ifstream file(fmt::format("{}/{}.signalled", history_directory, target));
    SentSignal signal;
    while (file >> signal.number >> signal.at_ns && std::getline(file >> std::ws, signal.sender))
      sent.push_back(signal);
  }
  std::sort(sent.begin(), sent.end(),
            [](const SentSignal& a, const SentSignal& b) { return a.at_ns < b.at_ns; });
  return sent;
}

std::optional<std::int32_t> spawned_index(std::string_view stderr_tail) {
  constexpr std::string_view kProcess = "\n-- Process ";
  constexpr std::string_view kSaid = " terminated with the following error:";
  const std::size_t at = stderr_tail.rfind(kProcess);
  if (at == std::string_view::npos)
    return std::nullopt;
  stderr_tail.remove_prefix(at + kProcess.size());
  std::int32_t index = 0;
  const char* const end = stderr_tail.data() + stderr_tail.size();
  const auto [rest, error] = std::from_chars(stderr_tail.data(), end, index);
  const std::string_view after(rest, static_cast<std::size_t>(end - rest));
  return error == std::errc() && starts_with(after, kSaid) ? std::optional(index) : std::nullopt;
}

// "... port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
std::string who_holds_the_port(std::string_view text) {
  constexpr std::string_view kPort = "port: ";
  const std::size_t at = text.find(kPort);
  std::uint16_t port = 0;
  if (text.find("EADDRINUSE") == std::string_view::npos || at == std::string_view::npos ||
      std::from_chars(text.data() + at + kPort.size(), text.data() + text.size(), port).ec !=
          std::errc())
    return "";
  const std::string end = fmt::format(":{}", port);
  for (const os::ProcessStat& process : os::read_processes()) {
    for (const std::string& address : os::listening_on(process.id.pid)) {
      if (address.size() > end.size() &&
          address.compare(address.size() - end.size(), end.size(), end) == 0)
        return fmt::format("port {} is held by pid {} ({})", port, process.id.pid,
                           os::command_line(process.id.pid));
    }
  }
  return "";
}

}  // namespace lockstep::launch
