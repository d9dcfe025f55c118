#include "harness/symbols/resolver.h"

#include <cxxabi.h>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <gelf.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "harness/base/library_source.h"
#include "harness/history/run_directory.h"
#include "harness/symbols/cpp_loops.h"
#include "harness/symbols/python_loops.h"

namespace lockstep::symbols {
namespace {

constexpr std::uintmax_t kSourceBytesMax = 8U << 20;

struct Place {
  std::string file{};
  std::int32_t line{};
};

struct Position : Place {
  std::string function{};
  std::string symbol{};                  ///< The function of the object that has it.
  std::vector<Place> inlined_through{};  ///< Its own place, then those it was inlined into.
  std::vector<SourceLoop> loops{};
};

std::string demangled(const char* name) {
  if (name == nullptr)
    return "";
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string result = status == 0 && text != nullptr ? text : name;
  std::free(text);
  return result;
}

/// The arguments say nothing that the line does not: "f(int)" is "f".
std::string without_arguments(std::string name) {
  std::size_t depth = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '<')
      ++depth;
    else if (name[i] == '>' && depth > 0 && (i == 0 || name[i - 1] != '-'))
      --depth;
    else if (name[i] == '(' && depth == 0 && i > 0 &&
             name.compare(i, 21, "(anonymous namespace)") != 0 &&
             (i < 8 || name.compare(i - 8, 8, "operator") != 0))
      return name.substr(0, i);
  }
  return name;
}

/// One object file, opened offline with load address 0.
class Module {
 public:
  static std::unique_ptr<Module> open(const std::string& path) {
    std::error_code failed;
    if (!std::filesystem::is_regular_file(path, failed))
      return nullptr;
    auto module = std::unique_ptr<Module>(new Module);
    module->session_ = dwfl_begin(&callbacks());
    if (module->session_ == nullptr)
      return nullptr;
    module->module_ = dwfl_report_offline(module->session_, "", path.c_str(), -1);
    dwfl_report_end(module->session_, nullptr, nullptr);
    if (module->module_ == nullptr)
      return nullptr;
    module->find_bias();
    module->names_lines_ &= !is_interpreter(path);
    return module;
  }
  ~Module() { dwfl_end(session_); }
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// Of a frame that came with its name there is no more to find than its line, and that only where
  /// the object says that it has lines or where they are, and is not the interpreter: each look for
  /// a name goes through all symbols, which are hundred thousands in LibTorch.
  Position look_up(std::uint64_t offset, bool named) {
    Position position;
    if (named && !names_lines_)
      return position;
    const Dwarf_Addr address = bias_ + offset + (offset < lowest_ ? lowest_ : 0);
    if (const char* symbol = dwfl_module_addrname(module_, address); symbol != nullptr)
      position.symbol = without_arguments(demangled(symbol));
    position.function = position.symbol;
    Dwarf_Addr bias = 0;
    if (Dwarf_Die* const unit = unit_of(address, bias); unit != nullptr) {
      find_line(*unit, address - bias, position);
      leave_inlined_functions(*unit, address - bias, position);
    }
    return position;
  }

 private:
  Module() = default;

  static const Dwfl_Callbacks& callbacks() {
    static char* debug_path = nullptr;  // The default search path.
    static const Dwfl_Callbacks kCallbacks = [] {
      Dwfl_Callbacks all{};
      all.find_elf = dwfl_build_id_find_elf;
      all.find_debuginfo = dwfl_standard_find_debuginfo;
      all.section_address = dwfl_offline_section_address;
      all.debuginfo_path = &debug_path;
      return all;
    }();
    return kCallbacks;
  }

  /// Where libdwfl has put address 0 of the file, and the lowest address the file is mapped to:
  /// frames of a program with a fixed address may count from there.
  void find_bias() {
    GElf_Addr bias = 0;
    Elf* elf = dwfl_module_getelf(module_, &bias);
    bias_ = bias;
    std::size_t count = 0;
    if (elf == nullptr || elf_getphdrnum(elf, &count) != 0)
      return;
    std::uint64_t lowest = ~std::uint64_t{0};
    for (std::size_t i = 0; i < count; ++i) {
      GElf_Phdr header{};
      if (gelf_getphdr(elf, static_cast<int>(i), &header) != nullptr && header.p_type == PT_LOAD)
        lowest = std::min<std::uint64_t>(lowest, header.p_vaddr & ~std::uint64_t{0xfff});
    }
    lowest_ = lowest == ~std::uint64_t{0} ? 0 : lowest;
    find_debug_sections(elf);
  }

  void find_debug_sections(Elf* elf) {
    std::size_t names = 0;
    if (elf_getshdrstrndx(elf, &names) != 0)
      return;
    for (Elf_Scn* section = nullptr; (section = elf_nextscn(elf, section)) != nullptr;) {
      GElf_Shdr header{};
      const char* const name = gelf_getshdr(section, &header) == nullptr
                                   ? nullptr
                                   : elf_strptr(elf, names, header.sh_name);
      for (const std::string_view known : {".debug_info", ".zdebug_info", ".gnu_debuglink"})
        names_lines_ |= name != nullptr && name == known;
    }
  }

  /// The compilation unit that has this address; null if none has. Not every compiler writes the
  /// index that libdwfl asks (clang does not), and of what no index has it tells the one before:
  /// then each unit is asked.
  Dwarf_Die* unit_of(Dwarf_Addr address, Dwarf_Addr& bias) {
    if (Dwarf_Die* const indexed = dwfl_module_addrdie(module_, address, &bias);
        indexed != nullptr && dwarf_haspc(indexed, address - bias) > 0)
      return indexed;
    Dwarf_Die* unit = nullptr;
    while ((unit = dwfl_module_nextcu(module_, unit, &bias)) != nullptr)
      if (dwarf_haspc(unit, address - bias) > 0)
        return unit;
    return nullptr;
  }

  static std::string folder_of(Dwarf_Die& unit) {
    Dwarf_Attribute folder{};
    const char* const given = dwarf_formstring(dwarf_attr(&unit, DW_AT_comp_dir, &folder));
    return given != nullptr ? given : "";
  }

  static void find_line(Dwarf_Die& unit, Dwarf_Addr address, Position& position) {
    Dwarf_Line* const line = dwarf_getsrc_die(&unit, address);
    int number = 0;
    const char* const file = line == nullptr ? nullptr : dwarf_linesrc(line, nullptr, nullptr);
    if (file == nullptr || dwarf_lineno(line, &number) != 0 || number <= 0)
      return;
    position.file = source_path(folder_of(unit), file);
    position.line = number;
    position.inlined_through.push_back(position);
  }

  /// Relative to the folder of the compilation; kept relative where builds have made it so (prefix
  /// maps), which libdw does not know and joins with that folder all the same.
  static std::string source_path(const std::string& folder, const std::string& file) {
    if (folder.empty())
      return file;
    const std::string directory = folder + "/";
    const bool joined = file.compare(0, directory.size(), directory) == 0;
    std::string path = joined || file.front() == '/' ? file : directory + file;
    std::error_code failed;
    if (path.compare(0, directory.size(), directory) == 0 && !std::filesystem::exists(path, failed))
      return path.substr(directory.size());
    return path;
  }

  /// What has this address, from the function to what is inlined there, innermost last. Not
  /// dwarf_getscopes, which does not look into namespaces, where clang puts functions.
  static void find_scopes(Dwarf_Die& in, Dwarf_Addr address, std::vector<Dwarf_Die>& scopes) {
    Dwarf_Die child;
    for (bool more = dwarf_child(&in, &child) == 0; more;
         more = dwarf_siblingof(&child, &child) == 0) {
      const bool has = dwarf_haspc(&child, address) > 0;
      if (!has && dwarf_tag(&child) != DW_TAG_namespace)
        continue;
      if (has)
        scopes.push_back(child);
      find_scopes(child, address, scopes);
      if (!scopes.empty())
        return;
    }
  }

  /// The function whose source line it is: the innermost inlined one; of a library's, the line
  /// that it is inlined into.
  static void leave_inlined_functions(Dwarf_Die& unit, Dwarf_Addr address, Position& position) {
    std::vector<Dwarf_Die> scopes;
    find_scopes(unit, address, scopes);
    bool told = false;
    for (auto scope = scopes.rbegin(); scope != scopes.rend(); ++scope) {
      const int tag = dwarf_tag(&*scope);
      if (tag != DW_TAG_inlined_subroutine && tag != DW_TAG_subprogram)
        continue;
      const std::optional<Place> call = call_of(unit, *scope);
      if (!told) {
        if (std::string name = name_of(*scope); !name.empty())
          position.function = std::move(name);
        told = !call || !is_library_source(position.file);
        if (!told)
          static_cast<Place&>(position) = *call;
      }
      if (!call)
        break;
      position.inlined_through.push_back(*call);
    }
  }

  /// Where this inlined function is called; nothing if that is not told.
  static std::optional<Place> call_of(Dwarf_Die& unit, Dwarf_Die& inlined) {
    const auto number = [&](unsigned name) {
      Dwarf_Attribute attribute{};
      Dwarf_Word value = 0;
      const bool told = dwarf_formudata(dwarf_attr(&inlined, name, &attribute), &value) == 0;
      return told ? value : 0;
    };
    Dwarf_Files* files = nullptr;
    if (number(DW_AT_call_line) == 0 || dwarf_getsrcfiles(&unit, &files, nullptr) != 0)
      return std::nullopt;
    const char* const file = dwarf_filesrc(files, number(DW_AT_call_file), nullptr, nullptr);
    if (file == nullptr)
      return std::nullopt;
    return Place{source_path(folder_of(unit), file),
                 static_cast<std::int32_t>(number(DW_AT_call_line))};
  }

  static std::string name_of(Dwarf_Die& die) {
    Dwarf_Attribute attribute{};
    for (const unsigned linkage :
         {unsigned{DW_AT_linkage_name}, unsigned{DW_AT_MIPS_linkage_name}}) {
      if (dwarf_attr_integrate(&die, linkage, &attribute) != nullptr)
        return without_arguments(demangled(dwarf_formstring(&attribute)));
    }
    const char* name = dwarf_diename(&die);
    return name == nullptr ? "" : name;
  }

  Dwfl* session_{};
  Dwfl_Module* module_{};
  Dwarf_Addr bias_{};
  std::uint64_t lowest_{};
  bool names_lines_{};  ///< Has debug information for users, or names the file that has it.
};

}  // namespace

class Resolver::Impl {
 public:
  explicit Impl(ResolverOptions options) : options_(std::move(options)) {
    std::error_code failed;
    root_ = std::filesystem::path(options_.shorten.empty()
                                      ? std::filesystem::current_path(failed).string()
                                      : options_.shorten)
                .lexically_normal()
                .string();
    if (!root_.empty() && root_.back() != '/')
      root_ += '/';
  }

  void resolve(Frame& frame) {
    if (frame.is_python()) {
      frame.file = shortened(frame.file);
      const PythonSource& text = source(python_sources_, frame.module);
      frame.loops = text.loops_around(frame.line);
      frame.in_finally = text.in_finally(frame.line);
    }
    if (frame.line > 0 || frame.module.empty() || frame.offset == 0)
      return;  // Of some frame only the module is known.
    const Position& position = look_up(frame.module, frame.offset, !frame.function.empty());
    frame.line = position.line;
    if (frame.file.empty())
      frame.file = position.file;
    // A name that came with it is kept: of a timed and an untimed wait the debug information of the
    // C library knows only the function that both are made of.
    if (frame.function.empty())
      frame.function = position.function;
    if (!position.symbol.empty() && frame.function != position.symbol)
      frame.inlined_into = position.symbol;
    frame.loops = position.loops;
  }

 private:
  template <class Source>
  const Source& source(std::map<std::string, Source>& sources, const std::string& path) {
    if (sources.size() >= options_.modules_max)
      sources.clear();
    const auto known = sources.find(path);
    if (known != sources.end())
      return known->second;
    std::string text;
    std::error_code failed;
    if (std::filesystem::file_size(path, failed) <= kSourceBytesMax && !failed) {
      std::ifstream file(path, std::ios::binary);
      text.assign(std::istreambuf_iterator<char>(file), {});
    }
    return sources.emplace(path, Source(text)).first->second;
  }

  /// Of what is inlined each part by its own source: that one of them cannot be read, or was
  /// changed after the object was built, hides no loop of the others, which this may well be in.
  std::vector<SourceLoop> loops_around(const std::string& module, const Position& position) {
    std::vector<SourceLoop> loops;
    for (auto place = position.inlined_through.rbegin(); place != position.inlined_through.rend();
         ++place) {
      std::error_code failed;
      const auto changed = std::filesystem::last_write_time(place->file, failed);
      if (failed || changed > std::filesystem::last_write_time(module, failed) || failed)
        continue;
      for (SourceLoop& loop : source(cpp_sources_, place->file).loops_around(place->line))
        loops.push_back(std::move(loop));
    }
    return loops;
  }

  const Position& look_up(const std::string& path, std::uint64_t offset, bool named) {
    if (remembered_ >= options_.cached_max) {
      positions_.clear();
      remembered_ = 0;
    }
    auto& of_module = positions_[{path, named}];
    const auto known = of_module.find(offset);
    if (known != of_module.end())
      return known->second;
    Module* module = open(path);
    Position position = module == nullptr ? Position{} : module->look_up(offset, named);
    position.loops = loops_around(path, position);
    position.file = shortened(position.file);
    ++remembered_;
    return of_module.emplace(offset, std::move(position)).first->second;
  }

  Module* open(const std::string& path) {
    const auto known = modules_.find(path);
    if (known != modules_.end())
      return known->second.get();
    if (modules_.size() >= options_.modules_max)
      modules_.clear();
    return modules_.emplace(path, Module::open(path)).first->second.get();
  }

  [[nodiscard]] std::string shortened(const std::string& file) const {
    if (file.empty())
      return file;
    const std::string path = std::filesystem::path(file).lexically_normal().string();
    return path.compare(0, root_.size(), root_) == 0 ? path.substr(root_.size()) : path;
  }

  ResolverOptions options_;
  std::string root_{};
  std::map<std::string, std::unique_ptr<Module>> modules_{};  // Null: cannot be read.
  std::map<std::pair<std::string, bool>, std::unordered_map<std::uint64_t, Position>> positions_{};
  std::map<std::string, PythonSource> python_sources_{};  // Empty: cannot be read.
  std::map<std::string, CppSource> cpp_sources_{};        // So, too.
  std::size_t remembered_{};
};

Resolver::Resolver(ResolverOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Resolver::~Resolver() = default;

void Resolver::resolve(Frame& frame) { impl_->resolve(frame); }

void Resolver::resolve(Run& run) {
  for (Frame* const frame : history::frames_of(run))
    resolve(*frame);
}

}  // namespace lockstep::symbols
