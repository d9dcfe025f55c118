// Goal: the function at an address is the one that libdwfl names, in every object of this process.
#include "harness/os/function_name.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace lockstep::testing {
namespace {

constexpr int kAddresses = 300;  // Of each object.

const Dwfl_Callbacks kFiles{
    .find_elf = dwfl_linux_proc_find_elf,
    .find_debuginfo = [](Dwfl_Module*, void**, const char*, Dwarf_Addr, const char*, const char*,
                         GElf_Word, char**) { return -1; },
    .section_address = nullptr,
    .debuginfo_path = nullptr};

struct Seen {
  int named{}, unnamed{};
};

int compare(Dwfl_Module* module, void**, const char* path, Dwarf_Addr low, void* argument) {
  Dwarf_Addr high = 0;
  dwfl_module_info(module, nullptr, nullptr, &high, nullptr, nullptr, nullptr, nullptr);
  for (int i = 0; i < kAddresses; ++i) {
    const Dwarf_Addr address = low + (high - low) / kAddresses * static_cast<Dwarf_Addr>(i);
    const char* const expected = dwfl_module_addrname(module, address);
    EXPECT_EQ(os::function_name(module, address), expected == nullptr ? "" : expected)
        << path << " + " << address - low;
    ++(expected == nullptr ? static_cast<Seen*>(argument)->unnamed
                           : static_cast<Seen*>(argument)->named);
  }
  return DWARF_CB_OK;
}

TEST(FunctionName, IsThatOfLibdwfl) {
  Dwfl* const session = dwfl_begin(&kFiles);
  ASSERT_NE(session, nullptr);
  ASSERT_EQ(dwfl_linux_proc_report(session, ::getpid()), 0);
  ASSERT_EQ(dwfl_report_end(session, nullptr, nullptr), 0);
  Seen seen;
  EXPECT_EQ(dwfl_getmodules(session, &compare, &seen, 0), 0);
  dwfl_end(session);
  EXPECT_GT(seen.named, kAddresses);
  EXPECT_GT(seen.unnamed, 0);
}

}  // namespace
}  // namespace lockstep::testing
