#include "harness/entry/torch.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>

#include "harness/entry/program.h"
#include "harness/entry/python_torch.h"

namespace lockstep::entry {
namespace {

namespace fs = std::filesystem;

constexpr const char* kByHand =
    "for a Python that has one: lockstep tap build --python PYTHON, once";
constexpr int kMinorMin = 11, kMinorMax = 15;  // Of 2.x.

Error unsupported(std::string what) {
  return Error{Error::Kind::kEnvironment, std::move(what),
               fmt::format("torch 2.{} to 2.{} can be seen inside", kMinorMin, kMinorMax)};
}

/// The number after `#define NAME ` in torch/headeronly/version.h; -1 if there is none.
int defined(const std::string& header, std::string_view name) {
  const std::size_t at = header.find(fmt::format("#define {} ", name));
  return at == std::string::npos ? -1 : std::atoi(header.c_str() + at + 9 + name.size());
}

Result<Torch> torch_of_python(const std::string& python) {
  const PythonsTorch asked = ask_for_torch(python);
  if (!asked.started)
    return Error{Error::Kind::kEnvironment, fmt::format("{} cannot be run", python), ""};
  if (asked.root.empty())
    return Error{Error::Kind::kEnvironment, fmt::format("{} has no torch", python), kByHand};
  return torch_in(asked.root);
}

Result<Torch> torch_of(const Program& program) {
  if (!program.python.empty())
    return torch_of_python(program.python);
  if (!program.obstacle.empty())
    return Error{Error::Kind::kEnvironment, program.obstacle, ""};
  return torch_in(fs::path(program.libtorch).parent_path().parent_path().string());
}

}  // namespace

Result<Torch> torch_in(const std::string& root) {
  Torch torch{root, {}};
  std::ifstream file(root + "/include/torch/headeronly/version.h");
  const std::string header{std::istreambuf_iterator<char>(file), {}};
  const int major = defined(header, "TORCH_VERSION_MAJOR");
  const int minor = defined(header, "TORCH_VERSION_MINOR");
  const int patch = defined(header, "TORCH_VERSION_PATCH");
  std::error_code failed;
  if (major < 0 || !fs::exists(torch.library(), failed))
    return unsupported(fmt::format("the torch in {} has no headers beside its libraries", root));
  torch.version = fmt::format("{}.{}.{}", major, minor, patch);
  if (major != 2 || minor < kMinorMin || minor > kMinorMax)
    return unsupported(fmt::format("the torch in {} is version {}", root, torch.version));
  return torch;
}

Result<Torch> torch_of_program(const std::string& program) {
  const std::optional<Program> found = program_of(program);
  if (found && !found->empty())
    return torch_of(*found);
  return Error{Error::Kind::kEnvironment,
               fmt::format("{} is {}", program,
                           found ? "neither Python nor linked to LibTorch" : "not a program"),
               ""};
}

Result<Torch> torch_of_command(const std::vector<std::string>& command) {
  const std::optional<Program> first = program_of(command.front());
  const bool is_script =
      first && !first->python.empty() && first->python != find_in_path(command.front());
  if (first && !first->empty() && !is_script)
    return torch_of(*first);
  std::vector<std::string> pythons;  // What a script or another word names is a guess.
  for (const std::string& word : command) {
    const std::optional<Program> program = &word == &command.front() ? first : program_of(word);
    if (program && !program->libtorch.empty() && program->obstacle.empty())
      return torch_of(*program);
    if (program && !program->python.empty())
      pythons.push_back(program->python);
  }
  if (const char* const environment = std::getenv("VIRTUAL_ENV"))
    pythons.push_back(fmt::format("{}/bin/python", environment));
  pythons.emplace_back(".venv/bin/python");
  for (const char* const name : {"python3", "python"})
    pythons.push_back(find_in_path(name).value_or(""));
  std::optional<Error> why;
  for (const std::string& python : pythons) {
    if (::access(python.c_str(), X_OK) != 0)
      continue;
    Result<Torch> torch = torch_of_python(python);
    if (torch)
      return torch;
    if (!why)
      why = torch.error();
  }
  return why.value_or(
      Error{Error::Kind::kEnvironment,
            "the command names no Python and no program linked to LibTorch, and there is no "
            "python3 in PATH",
            kByHand});
}

// As find_release of the shim.
std::string release_of(const Torch& torch) {
  for (const char* const name : {"version.py", "build-version"}) {
    std::ifstream file(fmt::format("{}/{}", torch.root, name));
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    constexpr std::string_view kBefore = "\n__version__ = '";
    const std::size_t at = text.find(kBefore);
    const std::string version = at == std::string::npos ? text : text.substr(at + kBefore.size());
    int major = 0, minor = 0, patch = 0, length = 0;
    if (version.empty())
      continue;
    if (std::sscanf(version.c_str(), "%d.%d.%d%n", &major, &minor, &patch, &length) != 3 ||
        std::strchr("+'\n", version.c_str()[length]) == nullptr)
      return {};
    return fmt::format("{}.{}", major, minor);
  }
  return {};
}

std::string tap_folder(const std::string& taps, const std::string& libtorch) {
  struct stat is {};
  if (::stat(libtorch.c_str(), &is) != 0)
    return {};
  return fmt::format("{}-{:x}-{:x}", taps, is.st_size,
                     is.st_mtim.tv_sec * 1'000'000'000L + is.st_mtim.tv_nsec);
}

}  // namespace lockstep::entry
