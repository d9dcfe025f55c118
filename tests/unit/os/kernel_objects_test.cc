// Goal: what a process keeps in the kernel is seen from outside as it is.
#include "harness/os/kernel_objects.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>

#include "harness/base/unique_fd.h"
#include "harness/os/proc.h"

namespace lockstep::os {
namespace {

const NamedObject* object_at(const std::vector<NamedObject>& objects, const std::string& path) {
  const auto at = std::find_if(objects.begin(), objects.end(),
                               [&](const NamedObject& object) { return object.path == path; });
  return at == objects.end() ? nullptr : &*at;
}

bool holds(std::int32_t pid, const NamedObject& object) { return !held(pid, {object}).empty(); }

TEST(KernelObjects, ASegmentOfTorchAndWhoHasIt) {
  const std::string name = fmt::format("/torch_{}_7_1", ::getpid());
  UniqueFd fd(::shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  ASSERT_TRUE(fd);
  ASSERT_EQ(::ftruncate(fd.get(), 8192), 0);
  const std::vector<NamedObject> objects = named_objects();
  const NamedObject* object = object_at(objects, "/dev/shm" + name);
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
  EXPECT_EQ(object_at(named_objects(), "/dev/shm" + name), nullptr);
}

TEST(KernelObjects, FilesOfOthersInSharedMemoryAreNone) {
  const std::string path = fmt::format("/dev/shm/dataset-{}", ::getpid());
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  ASSERT_TRUE(fd);
  EXPECT_EQ(object_at(named_objects(), path), nullptr);
  ::unlink(path.c_str());
}

/// With TMPDIR and TORCH_EXTENSIONS_DIR leading to a folder of its own.
class ObjectsInFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
    for (const char* const name : {"TMPDIR", "TORCH_EXTENSIONS_DIR"})
      ASSERT_EQ(::setenv(name, folder_.c_str(), 1), 0);
  }
  void TearDown() override {
    for (const char* const name : {"TMPDIR", "TORCH_EXTENSIONS_DIR"})
      ::unsetenv(name);
    std::filesystem::remove_all(folder_);
  }
  std::string folder_{"/tmp/lockstep-objects-XXXXXX"};
};

TEST_F(ObjectsInFiles, ADirectoryForSocketsIsHeldByWhoListensThere) {
  const std::string path = folder_ + "/pymp-1_ab";
  ASSERT_TRUE(std::filesystem::create_directory(path));
  ASSERT_TRUE(std::filesystem::create_directory(folder_ + "/tmp1_ab")) << "of any kind";
  const auto found = [&] {
    const std::vector<NamedObject> objects = named_objects();
    const NamedObject* const object = object_at(objects, path);
    EXPECT_EQ(object_at(objects, folder_ + "/tmp1_ab"), nullptr);
    return object == nullptr ? std::nullopt : std::optional(*object);
  };
  ASSERT_TRUE(found());
  EXPECT_EQ(found()->kind, NamedObject::Kind::kDirectory);
  EXPECT_FALSE(holds(::getpid(), *found()));
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  (path + "/listener-1").copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_TRUE(holds(::getpid(), *found()));
  socket = UniqueFd();
  EXPECT_FALSE(holds(::getpid(), *found()));
}

TEST_F(ObjectsInFiles, ALockOfAnExtensionIsHeldByWhoMadeIt) {
  const std::string path = folder_ + "/my_ops/lock";
  ASSERT_TRUE(std::filesystem::create_directory(folder_ + "/my_ops"));
  UniqueFd lock(::open(path.c_str(), O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const std::vector<NamedObject> objects = named_objects();
  const NamedObject* const object = object_at(objects, path);
  ASSERT_NE(object, nullptr);
  EXPECT_EQ(object->kind, NamedObject::Kind::kLock);
  EXPECT_TRUE(holds(::getpid(), *object));
  lock = UniqueFd();
  EXPECT_FALSE(holds(::getpid(), *object));
}

TEST_F(ObjectsInFiles, AFileThatTheKernelLocksIsNothingThatIsLeft) {
  const std::string path = folder_ + "/my_ops/lock";
  ASSERT_TRUE(std::filesystem::create_directory(folder_ + "/my_ops"));
  const UniqueFd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX), 0);
  const std::vector<NamedObject> objects = named_objects();
  ASSERT_NE(object_at(objects, path), nullptr);
  EXPECT_FALSE(holds(::getpid(), *object_at(objects, path)));
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

TEST(KernelObjects, FilesThatAreOpenAreToldByPathAndHowOften) {
  char form[] = "/tmp/lockstep-test-XXXXXX";
  const UniqueFd one(::mkstemp(form));
  const UniqueFd other(::open(form, O_RDONLY | O_CLOEXEC));
  ::unlink(form);  // The file is there for as long as it is open.
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const auto open = open_descriptors_of(::getpid());
  ASSERT_TRUE(open);
  const auto count = [&](const std::string& path) {
    const auto at = std::find_if(open->files.begin(), open->files.end(),
                                 [&](const auto& file) { return file.first == path; });
    return at == open->files.end() ? 0U : at->second;
  };
  EXPECT_EQ(count(form), 2U);
  EXPECT_EQ(count("/dev/null"), 0U);
}

TEST(KernelObjects, WhoHasADeviceOpenComputesOnIt) {
  EXPECT_EQ(gpus_among({"/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0",
                        "/dev/nvidia1", "/dev/nvidia", "/tmp/dev/nvidia2", "socket:[7]"}),
            (std::vector<std::string>{"/dev/nvidia0", "/dev/nvidia1"}));
  EXPECT_EQ(gpus_among({"/dev/kfd", "/dev/dri/renderD128"}), std::vector<std::string>{"/dev/kfd"});
}

TEST(KernelObjects, ACommandLineIsItsArguments) {
  EXPECT_NE(command_line(::getpid()).find("os_unit_tests"), std::string::npos);
  EXPECT_EQ(command_line(0x3fffffff), "");
}

}  // namespace
}  // namespace lockstep::os
