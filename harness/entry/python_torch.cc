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
#include <vector>

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

/// When it was changed last; 0 where it is not there.
long time_of(const std::string& path) {
  struct stat is {};
  return ::stat(path.c_str(), &is) == 0 ? is.st_mtim.tv_sec * 1'000'000'000L + is.st_mtim.tv_nsec
                                        : 0;
}

/// Lines of an answer: the folder of torch, then "TIME PATH" for what it depends on.
bool still_holds(std::istream& lines) {
  std::string line;
  bool any = false;
  while (std::getline(lines, line)) {
    const std::size_t space = line.find(' ');
    if (space == std::string::npos ||
        line.substr(0, space) != std::to_string(time_of(line.substr(space + 1))))
      return false;
    any = true;
  }
  return any;
}

/// What a version manager's script goes by, from here up: the interpreter that it starts.
std::vector<fs::path> versions_from_here() {
  std::vector<fs::path> files;
  const auto add = [&](const char* variable, const char* below, const char* name) {
    if (const char* const folder = std::getenv(variable))
      files.push_back(fs::path(folder) / below / name);
  };
  add("PYENV_ROOT", "", "version");
  add("HOME", ".pyenv", "version");
  std::error_code failed;
  for (fs::path folder = fs::current_path(failed); !failed; folder = folder.parent_path()) {
    files.push_back(folder / ".python-version");
    if (folder == folder.parent_path())
      break;
  }
  return files;
}

enum class Kind : std::uint8_t { kInterpreter, kVersionManager, kOther };

/// Another script, or a program of another name, may start this interpreter here and that one
/// elsewhere.
Kind kind_of(const std::string& python) {
  std::string head(4096, 0);
  std::ifstream file(python, std::ios::binary);
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<std::size_t>(file.gcount()));
  std::error_code failed;
  if (head.starts_with("\177ELF"))
    return fs::canonical(python, failed).filename().string().starts_with("python")
               ? Kind::kInterpreter
               : Kind::kOther;
  return head.starts_with("#!") && head.find("pyenv\" exec ") != std::string::npos
             ? Kind::kVersionManager
             : Kind::kOther;
}

/// What is in the current folder comes first.
bool can_be_remembered(Kind kind) {
  std::error_code failed;
  return kind != Kind::kOther && !fs::exists("torch", failed) && !fs::exists("torch.py", failed);
}

std::optional<fs::path> answer_file(const std::string& python) {
  const Result<fs::path> folder = cache_folder("asked");
  const Kind kind = kind_of(python);
  if (!folder || !can_be_remembered(kind))
    return std::nullopt;
  std::string key = python;
  if (kind == Kind::kVersionManager) {
    for (const fs::path& file : versions_from_here())
      key += fmt::format("\n{} {}", file.string(), time_of(file.string()));
  }
  for (const char* const name : {"VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "PYTHONNOUSERSITE",
                                 "PYTHONUSERBASE", "PYTHONSAFEPATH", "PYENV_VERSION", "HOME"}) {
    const char* const value = std::getenv(name);
    key += fmt::format("\n{}={}", name, value == nullptr ? "" : value);
  }
  return *folder / fmt::format("{:016x}", history::hash_bytes(key.data(), key.size()));
}

std::optional<std::string> remembered(const fs::path& file) {
  std::ifstream lines(file);
  std::string root;
  return std::getline(lines, root) && still_holds(lines) ? std::optional(root) : std::nullopt;
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
    if (const std::optional<std::string> root = remembered(*file))
      return {true, *root};
  }
  const ToolResult probe = run_tool({python, "-c", kProbe});
  const std::size_t at = probe.output.rfind(kAnswer);
  if (probe.status != 0 || at == std::string::npos)
    return {probe.started, ""};
  const std::string answer = probe.output.substr(at + kAnswer.size());
  std::string root = answer.substr(0, answer.find('\n'));
  root.resize(root.find_last_not_of('\r') + 1);
  if (file && answer.ends_with(kEnd))
    remember(*file, answer.substr(0, answer.size() - kEnd.size()));
  return {true, root};
}

}  // namespace lockstep::entry
