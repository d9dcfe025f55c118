// Goal: what a process keeps in the kernel is seen from outside as it is.
#include "harness/os/kernel_objects.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>

#include "harness/base/unique_fd.h"
#include "harness/os/proc.h"

namespace lockstep::os {
namespace {

const SharedObject* object_at(const std::vector<SharedObject>& objects, const std::string& path) {
  const auto at = std::find_if(objects.begin(), objects.end(),
                               [&](const SharedObject& object) { return object.path == path; });
  return at == objects.end() ? nullptr : &*at;
}

TEST(KernelObjects, ASegmentOfTorchAndWhoHasIt) {
  const std::string name = fmt::format("/torch_{}_7_1", ::getpid());
  UniqueFd fd(::shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  ASSERT_TRUE(fd);
  ASSERT_EQ(::ftruncate(fd.get(), 8192), 0);
  const std::vector<SharedObject> objects = shared_objects();
  const SharedObject* object = object_at(objects, "/dev/shm" + name);
  ASSERT_NE(object, nullptr);
  EXPECT_EQ(object->maker, ::getpid());
  EXPECT_EQ(object->bytes, 8192U);
  EXPECT_TRUE(holds(::getpid(), *object)) << "open";
  void* const memory = ::mmap(nullptr, 8192, PROT_READ, MAP_SHARED, fd.get(), 0);
  fd = UniqueFd();
  EXPECT_TRUE(holds(::getpid(), *object)) << "mapped";
  ::munmap(memory, 8192);
  EXPECT_FALSE(holds(::getpid(), *object));
  ::shm_unlink(name.c_str());
  EXPECT_EQ(object_at(shared_objects(), "/dev/shm" + name), nullptr);
}

TEST(KernelObjects, FilesOfOthersInSharedMemoryAreNone) {
  const std::string path = fmt::format("/dev/shm/dataset-{}", ::getpid());
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  ASSERT_TRUE(fd);
  EXPECT_EQ(object_at(shared_objects(), path), nullptr);
  ::unlink(path.c_str());
}

TEST(KernelObjects, DescriptorsAreCountedByKind) {
  int ends[2];
  const std::uint64_t before = count_descriptors(::getpid()).value_or(0);
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  EXPECT_EQ(count_descriptors(::getpid()), before + 2);
  const auto open = open_descriptors_of(::getpid());
  ASSERT_TRUE(open);
  EXPECT_GT(open->limit, 0U);
  EXPECT_GE(open->open, before + 2);  // That of the look itself may be among them.
  EXPECT_TRUE(std::any_of(open->kinds.begin(), open->kinds.end(), [](const auto& kind) {
    return kind.first == "pipe" && kind.second >= 2;
  }));
  ::close(ends[0]);
  ::close(ends[1]);
  EXPECT_FALSE(open_descriptors_of(0x3fffffff));
  EXPECT_FALSE(count_descriptors(0x3fffffff));
}

TEST(KernelObjects, ACommandLineIsItsArguments) {
  EXPECT_NE(command_line(::getpid()).find("os_unit_tests"), std::string::npos);
  EXPECT_EQ(command_line(0x3fffffff), "");
}

}  // namespace
}  // namespace lockstep::os
