// Compiles tap and shim for one LibTorch, with the compiler at hand and nothing of ours but their
// sources, which lie beside the program.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "harness/base/unique_fd.h"
#include "harness/entry/cache.h"
#include "harness/entry/entry.h"
#include "harness/entry/program.h"
#include "harness/entry/tool.h"
#include "harness/history/format.h"

namespace lockstep::entry {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

constexpr auto kCompileLimit = std::chrono::minutes(10);
// The first holds the tap; of the others headers are enough.
constexpr std::array<std::string_view, 4> kSourceFolders{"harness/tap", "harness/python",
                                                         "harness/history", "ci/gloo_stubs"};
constexpr const char* kTap = "liblockstep_tap.so";
constexpr const char* kShim = "liblockstep_shim.so";

Error environment_error(std::string what, std::string help = "") {
  return Error{Error::Kind::kEnvironment, std::move(what), std::move(help)};
}

/// PREFIX/share/lockstep of the program at PREFIX/bin/lockstep.
fs::path sources_folder() {
  std::error_code failed;
  const fs::path self = fs::read_symlink("/proc/self/exe", failed);
  return self.parent_path().parent_path() / "share" / "lockstep";
}

/// Every file that goes into the tap: changing one makes another tap.
Result<std::string> all_sources(const fs::path& root) {
  std::vector<fs::path> files;
  std::error_code failed;
  for (const std::string_view folder : kSourceFolders) {
    for (fs::recursive_directory_iterator at(root / folder, failed), end; at != end;
         at.increment(failed)) {
      const std::string kind = at->path().extension().string();
      if (at->is_regular_file(failed) && (kind == ".h" || folder == kSourceFolders.front()))
        files.push_back(at->path());
    }
    if (failed)
      return environment_error(fmt::format("the tap's sources are not in {}", root.string()),
                               "build or install lockstep anew");
  }
  std::sort(files.begin(), files.end());
  std::string text;
  for (const fs::path& file : files) {
    text.append(file.lexically_relative(root).string());
    const std::size_t before = text.size(), bytes = fs::file_size(file, failed);
    text.resize(before + (failed ? 0 : bytes));
    std::ifstream(file, std::ios::binary)
        .read(text.data() + before, static_cast<std::streamsize>(text.size() - before));
  }
  return text;
}

Result<std::string> compiler() {
  const char* const chosen = std::getenv("CXX");
  for (const std::string name : {chosen == nullptr ? "" : chosen, "g++", "c++", "clang++"}) {
    if (const auto path = find_in_path(name))
      return *path;
  }
  return environment_error("there is no C++ compiler to build the tap with",
                           "install g++, or set CXX");
}

/// `stand_ins`: its libraries have no symbols; those are found when the tap is loaded.
Words tap_arguments(const fs::path& sources, const Torch& torch, bool stand_ins = false) {
  return {"-std=c++20", "-O2", "-fPIC", "-shared", "-w", "-fvisibility=hidden",
          "-fvisibility-inlines-hidden", "-DNDEBUG", "-DUSE_DISTRIBUTED", "-DUSE_C10D_GLOO",
          "-DUSE_RPC", "-DUSE_TENSORPIPE", "-I" + sources.string(),
          // Stand-ins for gloo's headers, which wheels do not bring, come first.
          "-isystem", (sources / "ci/gloo_stubs").string(), "-isystem", torch.root + "/include",
          "-isystem", torch.root + "/include/torch/csrc/api/include",
          (sources / "harness/tap/tap_library.cc").string(), "-L" + torch.root + "/lib",
          stand_ins ? "-Wl,--no-as-needed" : "-Wl,--as-needed", "-ltorch_cpu", "-lc10", "-ldl",
          // libtorch_cpu of a CUDA wheel needs libraries that the linker need not find.
          stand_ins ? "-Wl,--unresolved-symbols=ignore-all"
                    : "-Wl,--unresolved-symbols=ignore-in-shared-libs"};
}

// g++ takes every file but the first for C++ again.
Words shim_arguments(const fs::path& sources) {
  Words arguments{
      "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-D_GNU_SOURCE", "-I" + sources.string()};
  for (const char* const part : {"shim.c", "shim_end.c", "shim_devices.c", "shim_rank.c"})
    arguments.insert(arguments.end(), {"-x", "c", (sources / "harness/tap" / part).string()});
  arguments.insert(arguments.end(), {"-x", "none", "-ldl"});
  return arguments;
}

/// The beginning of the names of all taps of these sources, see tap_folder().
Result<std::string> all_taps(const fs::path& sources) {
  static const Result<std::string> text = all_sources(sources);  // Beside this program: one place.
  if (!text)
    return text.error();
  const Result<fs::path> cache = cache_folder("tap");
  if (!cache)
    return cache.error();
  const std::string identity =
      fmt::format("{}{}", fmt::join(tap_arguments(sources, Torch{}), " "), *text);
  return fmt::format("{}/{:016x}", cache->string(),
                     history::hash_bytes(identity.data(), identity.size()));
}

/// Those that came with lockstep: a shim, and a folder with a tap for each release.
fs::path ready_taps() {
  const fs::path folder = sources_folder() / "taps";
  std::error_code failed;
  return fs::exists(folder / kShim, failed) ? folder : fs::path();
}

Built built_in(const std::string& taps, const fs::path& folder) {
  return {taps, ready_taps().string(), (folder / kTap).string(), (folder / kShim).string(), false};
}

std::optional<Built> ready_tap(const std::string& taps, const Torch& torch) {
  const fs::path folder = ready_taps();
  const std::string release = release_of(torch);
  std::error_code failed;
  if (folder.empty() || release.empty() || !fs::exists(folder / release / kTap, failed))
    return std::nullopt;
  return Built{taps, folder.string(), (folder / release / kTap).string(), (folder / kShim).string(),
               false};
}

Result<void> compile(const std::string& compiler, Words command, const fs::path& result) {
  // Whoever kills the compiler leaves its intermediate files, which shall not be elsewhere.
  command.insert(command.begin(),
                 {"env", fmt::format("TMPDIR={}", result.parent_path().string()), compiler});
  command.insert(command.end(), {"-o", result.string()});
  const ToolResult built = run_tool(command, kCompileLimit);
  if (built.status == 0)
    return {};
  if (built.status < 0)
    return environment_error(
        fmt::format("{} was not compiled: the compiler was killed, or took longer than {} s",
                    result.filename().string(), kCompileLimit.count()),
        "what was begun is removed at the next attempt");
  return environment_error(
      fmt::format("{} did not compile: {}", result.filename().string(),
                  built.output.empty() ? "the compiler says nothing"
                                       : built.output.substr(0, built.output.find('\n'))),
      fmt::format("the command was: {}", fmt::join(command, " ")));
}

/// Of one who was killed while he compiled: whoever holds the lock is the only one who does.
void remove_unfinished(const fs::path& folder) {
  const std::string beginning = folder.filename().string() + ".";
  std::error_code ignored;
  for (fs::directory_iterator at(folder.parent_path(), ignored), end; !ignored && at != end;
       at.increment(ignored)) {
    std::error_code failed;
    if (at->path().filename().string().starts_with(beginning) && at->is_directory(failed))
      fs::remove_all(at->path(), failed);
  }
}

/// Both or nothing: the folder appears when they are complete.
Result<void> compile_into(const fs::path& folder, const std::string& compiler, const Words& shim,
                          const Words& tap) {
  const fs::path unfinished = fmt::format("{}.{}", folder.string(), ::getpid());
  std::error_code failed;
  fs::create_directories(unfinished, failed);
  Result<void> done = compile(compiler, shim, unfinished / kShim);
  if (done)
    done = compile(compiler, tap, unfinished / kTap);
  if (done) {
    fs::rename(unfinished, folder, failed);
    if (failed)
      done =
          environment_error(fmt::format("cannot write {}: {}", folder.string(), failed.message()));
  }
  std::error_code ignored;
  fs::remove_all(unfinished, ignored);
  return done;
}

}  // namespace

std::string watch_script() { return (sources_folder() / "harness/watch/watch.py").string(); }

std::string subject_program() { return (sources_folder() / "harness/subject/main.py").string(); }

Result<Built> build_tap(const Torch& torch, const Say& say) {
  const fs::path sources = sources_folder();
  const Result<std::string> taps = all_taps(sources);
  if (!taps)
    return taps.error();
  const fs::path folder = tap_folder(*taps, torch.library());
  Built built = built_in(*taps, folder);
  std::error_code failed;
  if (fs::exists(folder, failed))
    return built;
  if (const std::optional<Built> ready = ready_tap(*taps, torch))
    return *ready;
  // One of several that start at once compiles; the others wait for it.
  const UniqueFd lock(
      ::open((folder.string() + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock || ::flock(lock.get(), LOCK_EX) != 0)
    return environment_error(fmt::format("cannot lock {}", folder.string()));
  if (fs::exists(folder, failed))
    return built;
  remove_unfinished(folder);
  const Result<std::string> program = compiler();
  if (!program)
    return program.error();
  if (say)
    say(fmt::format("building the tap for torch {} (once; half a minute)", torch.version));
  if (auto done =
          compile_into(folder, *program, shim_arguments(sources), tap_arguments(sources, torch));
      !done)
    return done.error();
  built.fresh = true;
  return built;
}

Result<Built> build_ready_tap(const Torch& torch, const std::string& folder, const Say& say) {
  const std::string release = release_of(torch);
  if (release.empty())
    return environment_error(fmt::format("the torch in {} is no release", torch.root),
                             "need version.py or build-version with a number such as 2.15.0");
  const Result<std::string> program = compiler();
  if (!program)
    return program.error();
  const fs::path sources = sources_folder();
  Built built{{},
              folder,
              (fs::path(folder) / release / kTap).string(),
              (fs::path(folder) / kShim).string(),
              true};
  std::error_code failed;
  fs::create_directories(fs::path(folder) / release, failed);
  if (failed)
    return environment_error(fmt::format("cannot write {}: {}", folder, failed.message()));
  if (say)
    say(fmt::format("building the tap for torch {}", torch.version));
  Result<void> done = compile(*program, shim_arguments(sources), built.shim);
  if (done)
    done = compile(*program, tap_arguments(sources, torch, /*stand_ins=*/true), built.tap);
  return done ? Result<Built>(built) : done.error();
}

std::optional<Built> built_before() {
  const Result<std::string> taps = all_taps(sources_folder());
  std::error_code failed;
  for (fs::directory_iterator at(taps ? fs::path(*taps).parent_path() : "", failed), end;
       !failed && at != end; at.increment(failed)) {
    const fs::path& folder = at->path();  // With an extension: of one that is being built.
    if (folder.string().starts_with(*taps + "-") && !folder.has_extension() &&
        fs::exists(folder / kTap, failed))
      return built_in(*taps, folder);
  }
  return std::nullopt;
}

}  // namespace lockstep::entry
