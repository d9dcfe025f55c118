#include "harness/os/function_name.h"

#include <gelf.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>

namespace lockstep::os {
namespace {

struct Table {
  std::span<const Elf64_Sym> symbols{};
  std::size_t first_global{};
  std::size_t names{};  ///< Index of the section that has them.
};

std::optional<Table> table_in(Elf_Scn* section, const GElf_Shdr& header) {
  Elf_Data* const data = elf_getdata(section, nullptr);
  if (data == nullptr || data->d_buf == nullptr ||
      reinterpret_cast<std::uintptr_t>(data->d_buf) % alignof(Elf64_Sym) != 0)
    return std::nullopt;
  return Table{
      .symbols = {static_cast<const Elf64_Sym*>(data->d_buf), data->d_size / sizeof(Elf64_Sym)},
      .first_global = header.sh_info,
      .names = header.sh_link};
}

/// The whole table where there is one, else that of what others may call. None where the object
/// keeps more names packed, or is of another kind.
std::optional<Table> table_of(Elf* elf) {
  if (gelf_getclass(elf) != ELFCLASS64)
    return std::nullopt;
  std::optional<Table> dynamic;
  std::size_t names = 0;
  elf_getshdrstrndx(elf, &names);
  for (Elf_Scn* section = elf_nextscn(elf, nullptr); section != nullptr;
       section = elf_nextscn(elf, section)) {
    GElf_Shdr header;
    if (gelf_getshdr(section, &header) == nullptr)
      continue;
    const char* const name = elf_strptr(elf, names, header.sh_name);
    if (name != nullptr && std::strcmp(name, ".gnu_debugdata") == 0)
      return std::nullopt;
    if (header.sh_type == SHT_SYMTAB)
      return table_in(section, header);
    if (header.sh_type == SHT_DYNSYM)
      dynamic = table_in(section, header);
  }
  return dynamic;
}

int worth(const Elf64_Sym& symbol) {
  switch (ELF64_ST_BIND(symbol.st_info)) {
    case STB_GLOBAL:
      return 3;
    case STB_WEAK:
      return 2;
    case STB_LOCAL:
      return 1;
    default:
      return 0;
  }
}

bool is_of_code(const Elf64_Sym& symbol) {
  switch (ELF64_ST_TYPE(symbol.st_info)) {
    case STT_SECTION:
    case STT_FILE:
    case STT_TLS:
      return false;
    default:
      return symbol.st_name != 0 && symbol.st_shndx != SHN_UNDEF && symbol.st_shndx != SHN_ABS;
  }
}

/// Which one begins last before the address, of those that reach it; of two that begin together the
/// one that more can see. Where none does, a label without a size in the same section that no
/// function stands behind.
class Closest {
 public:
  Closest(Elf* elf, std::uint64_t address) : elf_(elf), address_(address) {}

  void look_through(std::span<const Elf64_Sym> symbols) {
    for (const Elf64_Sym& symbol : symbols) {
      if (symbol.st_value > address_ || !is_of_code(symbol))
        continue;
      if (symbol.st_size == 0) {
        if (label_ == nullptr || symbol.st_value > label_->st_value)
          label_ = &symbol;
      } else if (address_ < symbol.st_value + symbol.st_size) {
        if (function_ == nullptr || symbol.st_value > function_->st_value ||
            (symbol.st_value == function_->st_value && worth(symbol) > worth(*function_)))
          function_ = &symbol;
      } else {
        last_end_ = std::max(last_end_, symbol.st_value + symbol.st_size);
      }
    }
  }

  [[nodiscard]] bool has_function() const { return function_ != nullptr; }
  [[nodiscard]] const Elf64_Sym* found() const {
    if (function_ != nullptr || label_ == nullptr || label_->st_value < last_end_)
      return function_;
    return is_in(label_->st_shndx) ? label_ : nullptr;
  }

 private:
  [[nodiscard]] bool is_in(std::size_t section) const {
    GElf_Shdr header;
    return gelf_getshdr(elf_getscn(elf_, section), &header) != nullptr &&
           header.sh_addr <= address_ && address_ - header.sh_addr < header.sh_size;
  }

  Elf* elf_;
  std::uint64_t address_, last_end_{};
  const Elf64_Sym* function_{};
  const Elf64_Sym* label_{};
};

}  // namespace

std::string function_name(Dwfl_Module* module, Dwarf_Addr address) {
  GElf_Addr bias = 0;
  Elf* const elf = dwfl_module_getelf(module, &bias);
  const std::optional<Table> table = elf == nullptr ? std::nullopt : table_of(elf);
  if (!table) {
    const char* const name = dwfl_module_addrname(module, address);
    return name == nullptr ? "" : name;
  }
  const std::size_t locals = std::min(table->first_global, table->symbols.size());
  Closest closest(elf, address - bias);
  closest.look_through(table->symbols.subspan(locals));
  if (!closest.has_function())
    closest.look_through(table->symbols.first(locals));
  const Elf64_Sym* const found = closest.found();
  const char* const name =
      found == nullptr ? nullptr : elf_strptr(elf, table->names, found->st_name);
  return name == nullptr ? "" : name;
}

}  // namespace lockstep::os
