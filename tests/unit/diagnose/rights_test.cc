// Why a process is not ours to look into.
#include "harness/diagnose/rights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace lockstep::diagnose {
namespace {

using testing::HasSubstr;

std::string said(const Rights& rights) {
  const auto error = refusal(rights);
  return error ? error->what + " | " + error->help : "";
}

TEST(Rights, NothingForbidsOnesOwn) {
  EXPECT_EQ(said({.pid = 7, .uid = 5, .our_uid = 5}), "");
  EXPECT_FALSE(why_refused(::getpid()));
}

TEST(Rights, AnotherUser) {
  EXPECT_THAT(said({.pid = 7, .uid = 5, .our_uid = 6}),
              HasSubstr("runs as uid 5, lockstep as uid 6"));
}

TEST(Rights, Undumpable) {
  EXPECT_THAT(said({.pid = 7, .dumpable = false}), HasSubstr("PR_SET_DUMPABLE 0"));
}

TEST(Rights, YamaIsToldFirstWhereItForbidsAll) {
  EXPECT_THAT(said({.pid = 7, .uid = 5, .our_uid = 6, .ptrace_scope = 2}), HasSubstr("is 2, need"));
  EXPECT_THAT(said({.pid = 7, .ptrace_scope = 1}), HasSubstr("is 1, need 0"));
}

TEST(Rights, TheCapabilityOutweighsAllButAnotherContainer) {
  EXPECT_EQ(said({.pid = 7, .uid = 5, .dumpable = false, .may_trace_any = true, .ptrace_scope = 1}),
            "");
  EXPECT_THAT(said({.pid = 7, .same_namespace = false, .may_trace_any = true}),
              HasSubstr("outside of this container"));
}

}  // namespace
}  // namespace lockstep::diagnose
