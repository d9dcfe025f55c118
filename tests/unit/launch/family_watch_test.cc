// Goal: who comes and goes is seen at the next look, however often none came before it.
#include "harness/launch/family_watch.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

namespace lockstep::launch {
namespace {

bool sees(FamilyWatch& watch, pid_t pid, const std::vector<Watched>& known) {
  const std::vector<os::ProcessStat>& family = watch.look(known);
  return std::any_of(family.begin(), family.end(), [&](const os::ProcessStat& process) {
    return process.id.pid == pid && !process.zombie();
  });
}

TEST(FamilyWatch, SeesWhoComesAndGoesAtTheNextLook) {
  FamilyWatch watch(nullptr);
  std::vector<Watched> known;
  for (int round = 0; round < 5; ++round) {
    for (int look = 0; look < 5; ++look)  // Nobody starts meanwhile, as a rule.
      EXPECT_FALSE(sees(watch, 0, known));
    const pid_t child = ::fork();
    while (child == 0)
      ::pause();
    known.push_back({.id = os::read_process(child)->id});
    for (int look = 0; look < 5; ++look)
      EXPECT_TRUE(sees(watch, child, known)) << look;
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    EXPECT_FALSE(sees(watch, child, known));
  }
}

}  // namespace
}  // namespace lockstep::launch
