// The name of the function at an address of a mapped object.
//
// libdwfl reads the name of every symbol on its way to one, half a million of them in LibTorch (74
// MB of text): this reads their addresses, and one name.
#pragma once

#include <elfutils/libdwfl.h>

#include <string>

namespace lockstep::os {

/// As the object has it; empty where no symbol covers the address.
std::string function_name(Dwfl_Module* module, Dwarf_Addr address);

}  // namespace lockstep::os
