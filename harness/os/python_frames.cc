#include "harness/os/python_frames.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gelf.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>

#include "harness/base/library_source.h"
#include "harness/base/unique_fd.h"
#include "harness/os/process_memory.h"
#include "harness/python/exceptions.h"
#include "harness/python/groups.h"
#include "harness/python/variables.h"

namespace lockstep::os {
namespace {

constexpr std::size_t kThreadsMax = 4096;
constexpr std::uint32_t kFramesMax = 128;
constexpr std::uint32_t kLocalsMax = 64, kGlobalsMax = 512;  // Looked at, of one frame.
constexpr std::size_t kIntegersMax = 32;                     // Kept, of one frame.
constexpr std::uint32_t kMembersMax = 65536;                 // Of a process group.
constexpr std::uint64_t kArgumentsMax = 4;                   // Of an exception.

/// Memory of another process.
struct Remote {
  std::int32_t pid{};
  bool read(std::uint64_t address, void* to, std::size_t bytes) const {
    return read_memory(pid, address, to, bytes);
  }
};

Error environment_error(std::int32_t pid, const char* what) {
  return Error{Error::Kind::kEnvironment, fmt::format("process {}: {}", pid, what), ""};
}

/// Where the interpreter keeps what leads to all else.
struct Interpreter {
  std::uint64_t runtime{}, version{}, code_type{}, int_type{}, dict_type{};
  [[nodiscard]] bool complete() const {
    return runtime != 0 && version != 0 && code_type != 0 && int_type != 0 && dict_type != 0;
  }
};

/// Its symbols in one object that is mapped from `base` on.
Interpreter symbols_in(Elf* elf, std::uint64_t base) {
  std::uint64_t lowest = ~std::uint64_t{0};
  std::size_t parts = 0;
  elf_getphdrnum(elf, &parts);
  for (std::size_t i = 0; i < parts; ++i) {
    GElf_Phdr part{};
    if (gelf_getphdr(elf, static_cast<int>(i), &part) != nullptr && part.p_type == PT_LOAD)
      lowest = std::min<std::uint64_t>(lowest, part.p_vaddr & ~std::uint64_t{0xfff});
  }
  Interpreter found;
  for (Elf_Scn* section = elf_nextscn(elf, nullptr); section != nullptr;
       section = elf_nextscn(elf, section)) {
    GElf_Shdr header{};
    if (gelf_getshdr(section, &header) == nullptr || header.sh_type != SHT_DYNSYM ||
        header.sh_entsize == 0)
      continue;
    Elf_Data* const data = elf_getdata(section, nullptr);
    for (int i = 0; data != nullptr && i < static_cast<int>(header.sh_size / header.sh_entsize);
         ++i) {
      GElf_Sym symbol{};
      if (gelf_getsym(data, i, &symbol) == nullptr || symbol.st_shndx == SHN_UNDEF)
        continue;
      const char* const name = elf_strptr(elf, header.sh_link, symbol.st_name);
      const std::string_view text = name == nullptr ? "" : name;
      const std::uint64_t address = base + symbol.st_value - lowest;
      if (text == "_PyRuntime")
        found.runtime = address;
      else if (text == "PyCode_Type")
        found.code_type = address;
      else if (text == "PyLong_Type")
        found.int_type = address;
      else if (text == "PyDict_Type")
        found.dict_type = address;
      else if (text == "Py_Version")
        found.version = address;
    }
  }
  return found;
}

Interpreter interpreter_in(const std::string& path, std::uint64_t base) {
  Interpreter found;
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  elf_version(EV_CURRENT);
  Elf* const elf = file ? elf_begin(file.get(), ELF_C_READ_MMAP, nullptr) : nullptr;
  if (elf != nullptr && elf_kind(elf) == ELF_K_ELF)
    found = symbols_in(elf, base);
  elf_end(elf);
  return found;
}

/// In the program itself, or in a libpython that it has loaded.
std::optional<Interpreter> interpreter_of(std::int32_t pid) {
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  std::set<std::string> seen;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream fields(line);
    std::string range, mode, offset, device, inode, path;
    fields >> range >> mode >> offset >> device >> inode >> path;
    const std::string name = path.substr(path.rfind('/') + 1);
    if (path.empty() || path[0] != '/' ||
        (name.rfind("python", 0) != 0 && name.rfind("libpython", 0) != 0) ||
        !seen.insert(path).second)
      continue;
    const std::uint64_t base = std::strtoull(range.c_str(), nullptr, 16);
    // As the process sees it: it may live in another mount namespace.
    const Interpreter found = interpreter_in(fmt::format("/proc/{}/root{}", pid, path), base);
    if (found.complete())
      return found;
  }
  return std::nullopt;
}

class Reader {
 public:
  Reader(std::int32_t pid, const Interpreter& interpreter, const python::Layout& layout,
         bool with_groups)
      : memory_{pid}, interpreter_(interpreter), layout_(layout), with_groups_(with_groups) {}

  std::vector<PythonThread> threads() const {
    std::vector<PythonThread> all;
    std::uint64_t main = 0, thread = 0;
    if (!python::load(memory_, interpreter_.runtime + layout_.runtime_main_interpreter, main) ||
        !python::load(memory_, main + layout_.interpreter_threads, thread))
      return all;
    for (std::size_t i = 0; thread != 0 && i < kThreadsMax; ++i) {
      std::uint64_t tid = 0;
      if (!python::load(memory_, thread + layout_.thread_native_id, tid))
        break;
      PythonThread read;
      read.tid = static_cast<std::int32_t>(tid);
      if (take(thread, read) && !read.frames.empty())
        all.push_back(std::move(read));
      if (!python::load(memory_, thread + layout_.thread_next, thread))
        break;
    }
    return all;
  }

  /// After threads(): of the first frame that leads to them.
  std::optional<std::vector<PythonGroup>> groups() const {
    std::vector<PythonGroup> all;
    std::set<std::uint64_t> seen;
    for (const std::uint64_t variables : modules_) {
      const std::uint64_t types = interpreter_.dict_type;
      const auto add = [&](std::uint64_t object, std::uint64_t name, std::uint64_t ranks) {
        all.push_back({.object = object, .name = text_at(name), .ranks = keys_of(ranks)});
      };
      if (!seen.insert(variables).second)
        continue;
      if (python::for_each_group(layout_, memory_, variables, types, add))
        return all;
      const std::uint64_t c10d = python::c10d_module(layout_, memory_, variables, types);
      if (c10d != 0 && python::for_each_group(layout_, memory_, c10d, types, add))
        return all;
    }
    return std::nullopt;
  }

 private:
  struct Seen {
    std::uint64_t address{};
    python::RawFrame raw{};
    friend bool operator==(const Seen& a, const Seen& b) {
      return a.address == b.address && a.raw.code == b.raw.code &&
             a.raw.instruction == b.raw.instruction;
    }
  };

  /// False if the thread could not be read to its end, which then ran meanwhile.
  bool take(std::uint64_t thread, PythonThread& read) const {
    std::vector<Seen> before, after;
    if (!walk(thread, before))
      return false;
    for (const Seen& seen : before) {
      PythonFrame frame;
      if (!describe(seen.raw, frame))
        return false;
      add_integers(seen, frame);
      if (with_groups_)
        add_distributed(seen, frame);
      read.frames.push_back(std::move(frame));
    }
    add_handled(thread, read);
    read.moving = !walk(thread, after) || before != after;
    if (read.moving) {
      read.handles.clear();
      read.passed.clear();
    }
    return true;
  }

  /// What cannot be read to its end is left out.
  void add_handled(std::uint64_t thread, PythonThread& read) const {
    const std::uint64_t exception = python::handled_exception(layout_, memory_, thread);
    char type[256];
    if (exception == 0 || !python::type_name(memory_, exception, type, sizeof type))
      return;
    bool described = true;
    const bool all =
        python::for_each_passed(layout_, memory_, exception, [&](const python::RawFrame& raw) {
          std::uint64_t code_type = 0;
          described = python::load(memory_, raw.code + python::kObjectType, code_type) &&
                      code_type == interpreter_.code_type;
          PythonFrame frame;
          described = described && describe(raw, frame);
          read.passed.insert(read.passed.begin(), std::move(frame));
          return described && read.passed.size() < kFramesMax;
        });
    if (all && described && !read.passed.empty())
      read.handles = std::string(type) + said_by(exception);
    else
      read.passed.clear();
  }

  /// ": no such label: 7"; empty where it was given nothing, or what is neither text nor a number.
  std::string said_by(std::uint64_t exception) const {
    std::uint64_t arguments = 0, count = 0;
    if (!python::load(memory_, exception + python::kExceptionArguments, arguments) ||
        !python::load(memory_, arguments + python::kTupleSize, count))
      return "";
    std::string words;
    for (std::uint64_t i = 0; i < count && i < kArgumentsMax; ++i) {
      const std::uint64_t place = arguments + layout_.tuple_items + 8 * i;
      std::uint64_t object = 0;
      char text[512], type[16];
      if (!python::load(memory_, place, object) || object == 0 ||
          !python::type_name(memory_, object, type, sizeof type))
        return "";
      const auto number = python::small_integer(layout_, memory_, object, interpreter_.int_type);
      const bool is_text = std::strcmp(type, "str") == 0 &&
                           python::text_at(layout_, memory_, place, text, sizeof text) != 0;
      if (!number && !is_text)
        return "";
      words += (i == 0 ? ": " : ", ") + (number ? std::to_string(*number) : std::string(text));
    }
    return words;
  }

  bool walk(std::uint64_t thread, std::vector<Seen>& frames) const {
    return python::walk(layout_, memory_, thread, interpreter_.code_type,
                        [&](std::uint64_t address, const python::RawFrame& raw) {
                          if (frames.size() < kFramesMax)
                            frames.push_back({address, raw});
                          else  // The outermost one says what the thread is.
                            frames.back() = {address, raw};
                          return true;
                        });
  }

  void add_integers(const Seen& seen, PythonFrame& frame) const {
    const auto add = [&](std::uint64_t name, std::uint64_t object) {
      if (frame.integers.size() >= kIntegersMax)
        return;
      char text[256];
      const auto value = python::small_integer(layout_, memory_, object, interpreter_.int_type);
      if (value && python::text_at(layout_, memory_, name, text, sizeof text) != 0)
        frame.integers.emplace_back(text, *value);
    };
    python::for_each_local(layout_, memory_, seen.address, seen.raw.code, kLocalsMax, add);
    if (frame.function == "<module>")
      python::for_each_global(layout_, memory_, seen.address, interpreter_.dict_type, kGlobalsMax,
                              add);
  }

  void add_distributed(const Seen& seen, PythonFrame& frame) const {
    std::uint64_t variables = 0;
    const bool is_c10d = frame.file.find("/torch/distributed/") != std::string::npos;
    if (python::load(memory_, seen.address + layout_.frame_names - python::kGlobalsBeforeNames,
                     variables) &&
        (is_c10d || !is_library_source(frame.file)))
      modules_.push_back(variables);
    if (!is_c10d)
      return;
    const auto add = [&](std::uint64_t name, std::uint64_t object) {
      char type[16];
      const bool typed = python::type_name(memory_, object, type, sizeof type);
      if (text_at(name) == "group")
        frame.group = object;
      else if (typed && std::strcmp(type, "str") == 0)
        frame.texts.emplace_back(text_at(name), text_of(object));
    };
    python::for_each_local(layout_, memory_, seen.address, seen.raw.code, kLocalsMax, add);
  }

  std::string text_at(std::uint64_t address) const {
    char text[256];
    return python::text_at(layout_, memory_, address, text, sizeof text) != 0 ? text : "";
  }

  /// Of the object itself; text_at() takes where its address lies.
  std::string text_of(std::uint64_t object) const {
    struct Held {
      const Remote& memory;
      std::uint64_t object;
      bool read(std::uint64_t address, void* to, std::size_t bytes) const {
        if (address != 0)
          return memory.read(address, to, bytes);
        std::memcpy(to, &object, bytes);
        return true;
      }
    };
    char text[256];
    const Held held{memory_, object};
    return python::text_at(layout_, held, 0, text, sizeof text) != 0 ? text : "";
  }

  std::vector<std::int32_t> keys_of(std::uint64_t dictionary) const {
    std::vector<std::int32_t> keys;
    python::for_each_entry(memory_, dictionary, interpreter_.dict_type, kMembersMax,
                           [&](std::uint64_t key, std::uint64_t) {
                             std::uint64_t object = 0;
                             if (!python::load(memory_, key, object))
                               return;
                             if (const auto number = python::small_integer(layout_, memory_, object,
                                                                           interpreter_.int_type))
                               keys.push_back(static_cast<std::int32_t>(*number));
                           });
    std::sort(keys.begin(), keys.end());
    return keys;
  }

  bool describe(const python::RawFrame& raw, PythonFrame& frame) const {
    python::Position position;
    char text[4096];
    if (!python::position_of(layout_, memory_, raw, position) ||
        python::text_at(layout_, memory_, raw.code + layout_.code_file, text, sizeof text) == 0)
      return false;
    frame.file = text;
    if (python::text_at(layout_, memory_, raw.code + layout_.code_name, text, sizeof text) == 0)
      return false;
    frame.function = text;
    frame.line = position.line;
    frame.position = position.packed();
    return true;
  }

  Remote memory_;
  const Interpreter& interpreter_;
  const python::Layout& layout_;
  bool with_groups_;
  mutable std::vector<std::uint64_t> modules_{};  // Variables of those that frames are of.
};

Result<PythonProcess> read(std::int32_t pid, bool with_groups) {
  const std::optional<Interpreter> interpreter = interpreter_of(pid);
  if (!interpreter)
    return environment_error(pid, "has no Python of version 3.11 or later, or is not ours to read");
  std::uint64_t version = 0;
  if (!python::load(Remote{pid}, interpreter->version, version))
    return environment_error(pid, "its memory cannot be read: that needs the right to trace it");
  const python::Layout* const layout =
      version >> 24 == 3 ? python::layout_of(static_cast<int>(version >> 16 & 0xff)) : nullptr;
  if (layout == nullptr)
    return environment_error(pid, "runs a Python whose frames are not known");
  std::uint64_t without_lock = 0;
  if (layout->minor >= python::kTellsLockSince &&
      python::load(Remote{pid}, interpreter->runtime + python::kRuntimeWithoutLock, without_lock) &&
      without_lock != 0)
    return environment_error(pid, "runs a Python without its lock, whose frames are not known");
  const Reader reader(pid, *interpreter, *layout, with_groups);
  PythonProcess process{.threads = reader.threads()};
  if (with_groups)
    process.groups = reader.groups();
  return process;
}

}  // namespace

Result<std::vector<PythonThread>> read_python_threads(std::int32_t pid) {
  Result<PythonProcess> process = read(pid, /*with_groups=*/false);
  if (!process)
    return process.error();
  return std::move(process->threads);
}

Result<PythonProcess> read_python_process(std::int32_t pid) {
  return read(pid, /*with_groups=*/true);
}

}  // namespace lockstep::os
