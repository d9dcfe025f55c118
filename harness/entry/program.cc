#include "harness/entry/program.h"

#include <elf.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>

#include "harness/entry/tool.h"

namespace lockstep::entry {
namespace {

bool is_program(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         ::access(path.c_str(), X_OK) == 0;
}

std::string_view basename_of(std::string_view path) { return path.substr(path.rfind('/') + 1); }

/// "python", "python3", "python3.12".
bool is_python_name(std::string_view path) {
  std::string_view name = basename_of(path);
  if (name.substr(0, 6) != "python")
    return false;
  name.remove_prefix(6);
  for (const char c : name) {
    if (c != '.' && std::isdigit(static_cast<unsigned char>(c)) == 0)
      return false;
  }
  return true;
}

/// The first word of a script that names a Python: that of its first line, or of a command in it.
std::string python_named_in(std::string_view script) {
  constexpr std::string_view kBetween = " \t\r\n'\"#!;&|()";
  for (std::size_t begin = 0; begin < script.size();) {
    begin = script.find_first_not_of(kBetween, begin);
    if (begin == std::string_view::npos)
      break;
    const std::size_t end = std::min(script.find_first_of(kBetween, begin), script.size());
    const std::string word(script.substr(begin, end - begin));
    begin = end;
    if (!is_python_name(word))
      continue;
    if (const auto path = find_in_path(word))
      return *path;
  }
  return {};
}

/// The loader that an executable asks for; empty: it is static.
std::string loader_of(std::ifstream& file, const Elf64_Ehdr& header) {
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part{};
    file.seekg(
        static_cast<std::streamoff>(header.e_phoff + static_cast<std::size_t>(i) * sizeof part));
    if (!file.read(reinterpret_cast<char*>(&part), sizeof part))
      break;
    if (part.p_type != PT_INTERP || part.p_filesz > 4096)
      continue;
    std::string loader(part.p_filesz, '\0');
    file.seekg(static_cast<std::streamoff>(part.p_offset));
    file.read(loader.data(), static_cast<std::streamsize>(loader.size()));
    return loader.substr(0, loader.find('\0'));
  }
  return {};
}

/// What the loader would load, as "NAME => PATH (ADDRESS)"; runs nothing of the program.
Program linked_program(const std::string& path, std::ifstream& file, const Elf64_Ehdr& header) {
  Program program;
  const std::string loader = loader_of(file, header);
  if (loader.empty()) {
    program.obstacle = fmt::format("{} is linked statically", path);
    return program;
  }
  const std::string listed = run_tool({loader, "--list", path}).output;
  for (const char* runtime : {"libasan.so", "libtsan.so", "libmsan.so", "libhwasan.so"}) {
    if (listed.find(runtime) != std::string::npos)
      program.obstacle = fmt::format(
          "{} is built with a sanitizer, which wants to be loaded first "
          "({})",
          path, runtime);
  }
  constexpr std::string_view kTorch = "libtorch_cpu.so => ";
  const std::size_t at = listed.find(kTorch);
  if (at != std::string::npos && listed[at + kTorch.size()] == '/') {
    const std::size_t begin = at + kTorch.size();
    const std::string found = listed.substr(begin, listed.find(" (", begin) - begin);
    char real[PATH_MAX];
    program.libtorch = ::realpath(found.c_str(), real) != nullptr ? real : found;
  }
  return program;
}

Program executable(const std::string& path) {
  Program program;
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && (status.st_mode & (S_ISUID | S_ISGID)) != 0) {
    program.obstacle = fmt::format("{} is setuid or setgid", path);
    return program;
  }
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr header{};
  file.read(reinterpret_cast<char*>(&header), sizeof header);
  if (file && std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0) {
    if (header.e_ident[EI_CLASS] == ELFCLASS64)
      return linked_program(path, file, header);
    program.obstacle = fmt::format("{} is not a 64-bit program", path);
    return program;
  }
  std::string script(4096, '\0');
  file.clear();
  file.seekg(0);
  file.read(script.data(), static_cast<std::streamsize>(script.size()));
  script.resize(static_cast<std::size_t>(file.gcount()));
  if (script.compare(0, 2, "#!") == 0)
    program.python = python_named_in(script);
  return program;
}

}  // namespace

std::optional<std::string> find_in_path(const std::string& name) {
  if (name.find('/') != std::string::npos)
    return is_program(name) ? std::optional(name) : std::nullopt;
  const char* const path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "/usr/bin:/bin" : path;
  while (!name.empty() && !rest.empty()) {
    const std::string_view folder = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(folder.size() + 1, rest.size()));
    std::string candidate = fmt::format("{}/{}", folder.empty() ? "." : folder, name);
    if (is_program(candidate))
      return candidate;
  }
  return std::nullopt;
}

std::optional<Program> program_of(const std::string& word) {
  const std::optional<std::string> path = find_in_path(word);
  if (!path)
    return std::nullopt;
  if (is_python_name(*path))
    return Program{*path, {}, {}};
  return executable(*path);
}

}  // namespace lockstep::entry
