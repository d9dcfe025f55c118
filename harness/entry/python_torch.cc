#include "harness/entry/python_torch.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>

#include "harness/entry/cache.h"
#include "harness/entry/tool.h"
#include "harness/history/format.h"

namespace lockstep::entry {
namespace {

namespace fs = std::filesystem;

// Importing torch takes seconds and needs its CUDA libraries, so it is only located. What decides
// where it is comes after it, a line each.
constexpr const char* kProbe = R"(
import importlib.util as u, os, sys
s = u.find_spec('torch')
print('\ntorch-root=' + (os.path.dirname(os.path.realpath(s.origin)) if s and s.origin else ''))
folders = [p for p in sys.path if p]
files = [sys.executable, os.path.join(sys.prefix, 'pyvenv.cfg')]
for p in folders:
    if os.path.isdir(p):
        files += [os.path.join(p, n) for n in sorted(os.listdir(p)) if n.endswith('.pth')]
for p in dict.fromkeys(files + folders):
    print(os.stat(p).st_mtime_ns if os.path.exists(p) else 0, p)
print('torch-end')
)";
constexpr std::string_view kAnswer = "\ntorch-root=", kEnd = "torch-end\n";

/// Lines of an answer: the folder of torch, then "TIME PATH" for what it depends on.
bool still_holds(std::istream& lines) {
  std::string line;
  bool any = false;
  while (std::getline(lines, line)) {
    const std::size_t space = line.find(' ');
    struct stat is {};
    const bool there = ::stat(line.c_str() + space + 1, &is) == 0;
    const long changed = there ? is.st_mtim.tv_sec * 1'000'000'000L + is.st_mtim.tv_nsec : 0;
    if (space == std::string::npos || line.substr(0, space) != std::to_string(changed))
      return false;
    any = true;
  }
  return any;
}

/// A script may start this interpreter here and that one elsewhere; and what is in the current
/// folder comes first.
bool can_be_remembered(const std::string& python) {
  char magic[4] = {};
  std::ifstream(python, std::ios::binary).read(magic, sizeof magic);
  std::error_code failed;
  return std::memcmp(magic, "\177ELF", sizeof magic) == 0 && !fs::exists("torch", failed) &&
         !fs::exists("torch.py", failed);
}

std::optional<fs::path> answer_file(const std::string& python) {
  const Result<fs::path> folder = cache_folder("asked");
  if (!folder || !can_be_remembered(python))
    return std::nullopt;
  std::string key = python;
  for (const char* const name : {"VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "PYTHONNOUSERSITE",
                                 "PYTHONUSERBASE", "PYTHONSAFEPATH", "HOME"}) {
    const char* const value = std::getenv(name);
    key += fmt::format("\n{}={}", name, value == nullptr ? "" : value);
  }
  return *folder / fmt::format("{:016x}", history::hash_bytes(key.data(), key.size()));
}

std::string remembered(const fs::path& file) {
  std::ifstream lines(file);
  std::string root;
  return std::getline(lines, root) && still_holds(lines) ? root : "";
}

/// Whole or not at all.
void remember(const fs::path& file, const std::string& answer) {
  const fs::path unfinished = fmt::format("{}.{}", file.string(), ::getpid());
  std::error_code failed;
  if (std::ofstream(unfinished) << answer)
    fs::rename(unfinished, file, failed);
  fs::remove(unfinished, failed);
}

}  // namespace

PythonsTorch ask_for_torch(const std::string& python) {
  const std::optional<fs::path> file = answer_file(python);
  if (file) {
    if (const std::string root = remembered(*file); !root.empty())
      return {true, root};
  }
  const ToolResult probe = run_tool({python, "-c", kProbe});
  const std::size_t at = probe.output.rfind(kAnswer);
  if (probe.status != 0 || at == std::string::npos)
    return {probe.started, ""};
  const std::string answer = probe.output.substr(at + kAnswer.size());
  std::string root = answer.substr(0, answer.find('\n'));
  root.resize(root.find_last_not_of('\r') + 1);
  if (file && !root.empty() && answer.ends_with(kEnd))
    remember(*file, answer.substr(0, answer.size() - kEnd.size()));
  return {true, root};
}

}  // namespace lockstep::entry
