#include "harness/os/stack_sampler.h"

#include <cxxabi.h>
#include <elfutils/libdwfl.h>
#include <fmt/format.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "harness/os/function_name.h"
#include "harness/os/process_memory.h"
#include "harness/os/thread_snapshot.h"

namespace lockstep::os {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kFramesMax = 256;
constexpr std::size_t kImagesMax = 8;

std::string demangled(const char* symbol) {
  int status = 0;
  char* text = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
  std::string name = status == 0 ? text : symbol;
  std::free(text);
  return name;
}

// Separate debug files are never looked for: the search may go to the network.
int no_debug_file(Dwfl_Module*, void**, const char*, Dwarf_Addr, const char*, const char*,
                  GElf_Word, char**) {
  return -1;
}

// What of a process's mappings decides how its stacks unwind.
std::string executable_mappings(std::int32_t pid) {
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  std::string text;
  for (std::string line; std::getline(maps, line);) {
    const std::size_t permissions = line.find(' ');
    const bool executable =
        permissions != std::string::npos && line.compare(permissions + 3, 1, "x") == 0;
    if (executable && line.find('/') != std::string::npos)
      text += line + "\n";
  }
  return text;
}

// The functions of mapped objects, by object and offset. Processes that have the same ones at other
// places share them.
using FunctionNames = std::map<std::pair<std::string, Dwarf_Addr>, std::string>;

// One file at one path, whatever mount namespace that is seen in.
std::string identity_of(Dwfl_Module* module, const std::string& path, Dwarf_Addr bytes) {
  const unsigned char* bits = nullptr;
  GElf_Addr where = 0;
  const int length = dwfl_module_build_id(module, &bits, &where);
  std::string id = fmt::format("{}:{:x}:", path, bytes);
  if (length > 0)
    id.append(reinterpret_cast<const char*>(bits), static_cast<std::size_t>(length));
  return id;
}

// The objects mapped by a process, read once and used for every process that has the same ones at
// the same places.
class Image {
 public:
  Image(std::string mappings, FunctionNames& names)
      : mappings_(std::move(mappings)), names_(names) {}
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;
  ~Image() {
    if (dwfl_ != nullptr)
      dwfl_end(dwfl_);
  }

  [[nodiscard]] const std::string& mappings() const { return mappings_; }

  Result<void> open(std::int32_t pid) {
    dwfl_ = dwfl_begin(&kFiles);
    if (dwfl_ == nullptr || dwfl_linux_proc_report(dwfl_, pid) != 0 ||
        dwfl_report_end(dwfl_, nullptr, nullptr) != 0)
      return Error{Error::Kind::kEnvironment,
                   fmt::format("cannot read the mappings of process {}", pid), ""};
    if (!dwfl_attach_state(dwfl_, nullptr, pid, &kThreads, this))
      return dwfl_error("cannot unwind", pid);
    return {};
  }

  Result<std::vector<NativeFrame>> unwind(const ThreadSnapshot& snapshot,
                                          Clock::time_point deadline) {
    snapshot_ = &snapshot;
    deadline_ = deadline;
    frames_.clear();
    // The end of the stack is reported like a failure to unwind: what was found so far is the
    // answer.
    dwfl_getthread_frames(dwfl_, snapshot.pid, &Image::on_frame, this);
    snapshot_ = nullptr;
    if (frames_.empty())
      return dwfl_error("no frame found", snapshot.pid);
    return std::exchange(frames_, {});
  }

 private:
  static Error dwfl_error(const char* what, std::int32_t pid) {
    const char* why = dwfl_errmsg(-1);
    return {
        Error::Kind::kEnvironment,
        fmt::format("{} in process {}: {}", what, pid, why != nullptr ? why : "no reason given"),
        ""};
  }

  static int on_frame(Dwfl_Frame* state, void* argument) {
    auto& self = *static_cast<Image*>(argument);
    Dwarf_Addr pc = 0;
    bool activation = false;
    if (!dwfl_frame_pc(state, &pc, &activation) || self.frames_.size() >= kFramesMax ||
        Clock::now() >= self.deadline_)
      return DWARF_CB_ABORT;
    self.frames_.push_back(self.frame_at(activation ? pc : pc - 1));
    return DWARF_CB_OK;
  }

  // Symbol tables are searched from end to end, so each address is looked up once.
  const NativeFrame& frame_at(Dwarf_Addr address) {
    const auto [at, fresh] = frame_of_.try_emplace(address);
    Dwfl_Module* module = fresh ? dwfl_addrmodule(dwfl_, address) : nullptr;
    if (module != nullptr) {
      Dwarf_Addr low = 0, high = 0;
      const char* file = nullptr;
      const char* name =
          dwfl_module_info(module, nullptr, &low, &high, nullptr, nullptr, &file, nullptr);
      at->second.module = file != nullptr ? file : name;
      at->second.offset = address - low;
      at->second.function = function_at(module, address, at->second, high - low);
    }
    return at->second;
  }

  std::string function_at(Dwfl_Module* module, Dwarf_Addr address, const NativeFrame& frame,
                          Dwarf_Addr bytes) {
    const auto [known, fresh] =
        names_.try_emplace({identity_of(module, frame.module, bytes), frame.offset});
    if (fresh)
      known->second = demangled(function_name(module, address).c_str());
    return known->second;
  }

  static bool read_memory(Dwfl*, Dwarf_Addr address, Dwarf_Word* result, void* argument) {
    const ThreadSnapshot* snapshot = static_cast<Image*>(argument)->snapshot_;
    if (snapshot == nullptr)
      return false;
    const std::uint64_t at = address - snapshot->stack_begin;
    if (address >= snapshot->stack_begin && at + sizeof *result <= snapshot->stack.size()) {
      std::memcpy(result, snapshot->stack.data() + at, sizeof *result);
      return true;
    }
    return os::read_memory(snapshot->pid, address, result, sizeof *result);
  }

  static pid_t no_next_thread(Dwfl*, void*, void**) { return 0; }

  static bool get_thread(Dwfl*, pid_t, void* argument, void** thread_argument) {
    *thread_argument = argument;
    return true;
  }

  static bool set_registers(Dwfl_Thread* thread, void* argument) {
    const ThreadSnapshot* snapshot = static_cast<Image*>(argument)->snapshot_;
    if (snapshot == nullptr)
      return false;
    const std::vector<Dwarf_Word> registers(snapshot->registers.begin(), snapshot->registers.end());
    return dwfl_thread_state_registers(thread, 0, static_cast<unsigned>(registers.size()),
                                       registers.data());
  }

  static constexpr Dwfl_Callbacks kFiles{.find_elf = dwfl_linux_proc_find_elf,
                                         .find_debuginfo = no_debug_file,
                                         .section_address = nullptr,
                                         .debuginfo_path = nullptr};
  static constexpr Dwfl_Thread_Callbacks kThreads{.next_thread = no_next_thread,
                                                  .get_thread = get_thread,
                                                  .memory_read = read_memory,
                                                  .set_initial_registers = set_registers,
                                                  .detach = nullptr,
                                                  .thread_detach = nullptr};

  std::string mappings_;
  FunctionNames& names_;
  Dwfl* dwfl_{};
  const ThreadSnapshot* snapshot_{};
  Clock::time_point deadline_{};
  std::vector<NativeFrame> frames_{};
  std::map<Dwarf_Addr, NativeFrame> frame_of_{};
};

}  // namespace

class StackSampler::Impl {
 public:
  Result<std::vector<NativeFrame>> sample(std::int32_t pid, std::int32_t tid,
                                          Clock::time_point deadline) {
    Result<ThreadSnapshot> snapshot = copier_.copy(pid, tid, deadline);
    if (!snapshot)
      return snapshot.error();
    Result<Image*> image = image_of(pid);
    if (!image)
      return image.error();
    return (*image)->unwind(*snapshot, deadline);
  }

  void release() { copier_.release(); }

 private:
  Result<Image*> image_of(std::int32_t pid) {
    std::string mappings = executable_mappings(pid);
    for (const std::unique_ptr<Image>& image : images_) {
      if (image->mappings() == mappings)
        return image.get();
    }
    auto image = std::make_unique<Image>(std::move(mappings), names_);
    if (Result<void> opened = image->open(pid); !opened)
      return opened.error();
    if (images_.size() >= kImagesMax)
      images_.erase(images_.begin());
    images_.push_back(std::move(image));
    return images_.back().get();
  }

  ThreadCopier copier_{};
  FunctionNames names_{};
  std::vector<std::unique_ptr<Image>> images_{};
};

StackSampler::StackSampler() : impl_(std::make_unique<Impl>()) {}
StackSampler::~StackSampler() = default;

void StackSampler::release() { impl_->release(); }

Result<std::vector<NativeFrame>> StackSampler::sample(std::int32_t pid, std::int32_t tid,
                                                      Clock::time_point deadline) {
  return impl_->sample(pid, tid, deadline);
}

}  // namespace lockstep::os
