#include "tests/mutation/mutation.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bitset>
#include <cstdlib>
#include <sstream>
#include <string>

namespace lockstep::mutation {
namespace {

constexpr std::size_t kMutantsMax = 1 << 16;

std::bitset<kMutantsMax> mutants_of_environment() {
  std::bitset<kMutantsMax> mutants;
  const char* const text = std::getenv("LOCKSTEP_MUTANT");
  std::istringstream numbers(text == nullptr ? "" : text);
  for (std::string number; std::getline(numbers, number, ',');) {
    if (const int mutant = std::atoi(number.c_str()); mutant >= 0)
      mutants.set(static_cast<std::size_t>(mutant));
  }
  return mutants;
}

// A byte for each mutant, in a file that is called as the case's history with the rank's process:
// what is mapped survives however the process ends. Null if it is not asked for.
unsigned char* map_reached() {
  const char* const folder = std::getenv("LOCKSTEP_MUTATION_REACHED");
  const char* const history = std::getenv("LOCKSTEP_HISTORY");
  if (folder == nullptr || history == nullptr)
    return nullptr;
  const std::string base = folder + ("/" + std::to_string(::getpid()));
  if (::symlink(history, (base + ".live").c_str()) != 0)
    return nullptr;
  char run[4096];
  const ssize_t length = ::readlink((std::string(history) + "/run").c_str(), run, sizeof run - 1);
  if (length > 0) {
    run[length] = 0;
    (void)::symlink(run, (base + ".run").c_str());
  }
  const int fd = ::open((base + ".reached").c_str(), O_RDWR | O_CREAT, 0600);
  if (fd < 0 || ::ftruncate(fd, kMutantsMax) != 0)
    return nullptr;
  void* const bytes = ::mmap(nullptr, kMutantsMax, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  return bytes == MAP_FAILED ? nullptr : static_cast<unsigned char*>(bytes);
}

}  // namespace

bool chosen(int number) {
  static const std::bitset<kMutantsMax> mutants = mutants_of_environment();
  static unsigned char* const reached = map_reached();
  const auto place = static_cast<std::size_t>(number);
  if (reached != nullptr)
    reached[place] = 1;
  return mutants[place];
}

}  // namespace lockstep::mutation
