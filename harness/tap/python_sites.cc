#include "harness/tap/python_sites.h"

#include <dlfcn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "harness/tap/known_stacks.h"

namespace lockstep::tap {
namespace {

using history::kFramesMax;
using python::RawFrame;
using RawFrames = std::array<RawFrame, kFramesMax>;

/// The public functions of the interpreter in this process.
struct Interpreter {
  const char* (*version)();
  int (*has_gil)();
  void* (*this_thread)();
  void* (*frame_of)(void* thread);
  void* (*back)(void* frame);
  void* (*code_of)(void* frame);
  int (*line_of)(void* frame);
  void* (*attribute)(void* object, const char* name);
  const char* (*utf8)(void* text);
  void (*release)(void* object);
  void (*forget_error)();
  void* code_type;

  bool find() {
    return get(version, "Py_GetVersion") && get(has_gil, "PyGILState_Check") &&
           get(this_thread, "PyGILState_GetThisThreadState") &&
           get(frame_of, "PyThreadState_GetFrame") && get(back, "PyFrame_GetBack") &&
           get(code_of, "PyFrame_GetCode") && get(line_of, "PyFrame_GetLineNumber") &&
           get(attribute, "PyObject_GetAttrString") && get(utf8, "PyUnicode_AsUTF8") &&
           get(release, "Py_DecRef") && get(forget_error, "PyErr_Clear") &&
           get(code_type, "PyCode_Type");
  }
  template <class Function>
  static bool get(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
    return function != nullptr;
  }

  [[nodiscard]] bool says(void* code, const char* name, const char* expected) const {
    void* const text = attribute(code, name);
    const char* const have = text == nullptr ? nullptr : utf8(text);
    const bool same = have != nullptr && std::strcmp(have, expected) == 0;
    if (have == nullptr)
      forget_error();
    if (text != nullptr)
      release(text);
    return same;
  }
};

/// Whether the interpreter says the same of this frame.
bool agrees(const Interpreter& interpreter, const python::Layout& layout, void* frame,
            const RawFrame& raw) {
  char file[4096], name[1024];
  python::Position position;
  const Careful memory;
  if (!python::position_of(layout, memory, raw, position) ||
      python::text_at(layout, memory, raw.code + layout.code_file, file, sizeof file) == 0 ||
      python::text_at(layout, memory, raw.code + layout.code_name, name, sizeof name) == 0)
    return false;
  void* const code = interpreter.code_of(frame);
  const bool same = reinterpret_cast<std::uint64_t>(code) == raw.code &&
                    interpreter.line_of(frame) == position.line &&
                    interpreter.says(code, "co_filename", file) &&
                    interpreter.says(code, "co_qualname", name);
  interpreter.release(code);
  return same;
}

/// Whether what is read of the calling thread's frames is what the interpreter says of them.
bool reads_rightly(const Interpreter& interpreter, const python::Layout& layout) {
  RawFrames raw;
  std::uint32_t count = 0;
  void* const thread = interpreter.this_thread();
  if (thread == nullptr || !python::walk(layout, Careful{}, reinterpret_cast<std::uint64_t>(thread),
                                         reinterpret_cast<std::uint64_t>(interpreter.code_type),
                                         raw.data(), kFramesMax, count))
    return false;
  void* frame = interpreter.frame_of(thread);
  std::uint32_t same = 0;
  while (frame != nullptr && same < count && agrees(interpreter, layout, frame, raw[same])) {
    void* const outer = interpreter.back(frame);
    interpreter.release(frame);
    frame = outer;
    ++same;
  }
  const bool cut_off = frame != nullptr && count == kFramesMax && same + 1 == count;
  const bool all = cut_off || (same == count && frame == nullptr);
  if (frame != nullptr)
    interpreter.release(frame);
  return count != 0 && all;
}

bool is_main_thread() { return syscall(SYS_gettid) == getpid(); }

bool is_gloo_thread() {
  char name[16] = "";
  return prctl(PR_GET_NAME, name) == 0 && std::strcmp(name, "pt_gloo_runloop") == 0;
}

enum class Kind : unsigned char { kNotAsked, kMain, kGloo, kOther };

Kind kind_of_this_thread() {
  static thread_local Kind kind{};
  if (kind == Kind::kNotAsked)
    kind = is_main_thread() ? Kind::kMain : is_gloo_thread() ? Kind::kGloo : Kind::kOther;
  return kind;
}

/// Whether the texts of these frames say that they are all PyTorch's own.
bool are_of_torch(const python::Layout& layout, const RawFrame* frames, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) {
    char file[4096];
    if (python::text_at(layout, Direct{}, frames[i].code + layout.code_file, file, sizeof file) ==
            0 ||
        std::strstr(file, "-packages/torch/") == nullptr)
      return false;
  }
  return true;
}

bool ends_with(const char* text, const char* end) {
  const std::size_t length = std::strlen(text), wanted = std::strlen(end);
  return length >= wanted && std::strcmp(text + length - wanted, end) == 0;
}

/// Of the program, as far as its file's name tells.
bool is_own_file(const char* file) {
  return file[0] != '<' && std::strstr(file, "-packages/") == nullptr &&
         std::strstr(file, "/lib/python3.") == nullptr;
}

}  // namespace

bool PythonSites::begin() {
  Interpreter interpreter{};
  if (!interpreter.find() || interpreter.has_gil() != 1 ||
      std::strncmp(interpreter.version(), "3.", 2) != 0)
    return false;
  layout_ = python::layout_of(std::atoi(interpreter.version() + 2));
  // Once it has gone, thread states are freed while threads may still run.
  const bool tells_end = Interpreter::get(finalizing_, "Py_IsFinalizing") ||
                         Interpreter::get(finalizing_, "_Py_IsFinalizing");
  code_type_ = reinterpret_cast<std::uint64_t>(interpreter.code_type);
  this_thread_ = interpreter.this_thread;
  main_thread_ = is_main_thread() ? reinterpret_cast<std::uint64_t>(this_thread_()) : 0;
  return layout_ != nullptr && tells_end && reads_rightly(interpreter, *layout_);
}

std::uint32_t PythonSites::walk(RawFrame* frames) const {
  void* const thread = this_thread_();
  std::uint32_t count = 0;
  if (thread != nullptr && finalizing_() == 0)
    python::walk(*layout_, Direct{}, reinterpret_cast<std::uint64_t>(thread), code_type_, frames,
                 kFramesMax, count);
  return count;
}

std::size_t PythonSites::text(char* to, std::size_t size) const {
  RawFrames frames;
  std::size_t used = 0;
  const std::uint32_t count = walk(frames.data());
  for (std::uint32_t i = 0; i < count; ++i) {
    char file[1024], name[256];
    python::Position position;
    if (!python::position_of(*layout_, Direct{}, frames[i], position) ||
        python::text_at(*layout_, Direct{}, frames[i].code + layout_->code_file, file,
                        sizeof file) == 0 ||
        python::text_at(*layout_, Direct{}, frames[i].code + layout_->code_name, name,
                        sizeof name) == 0)
      continue;
    const int bytes = std::snprintf(to + used, size - used, "%llu\t%d\t%s\t%s\n",
                                    static_cast<unsigned long long>(position.packed()),
                                    position.line, name, file);
    if (bytes < 0 || used + static_cast<std::size_t>(bytes) >= size)
      break;  // Frames that have no room are left out.
    used += static_cast<std::size_t>(bytes);
  }
  to[used] = 0;
  return used;
}

std::uint32_t PythonSites::own_line(history::Writer& writer) const {
  RawFrames frames;
  const std::uint32_t count = walk(frames.data());
  for (std::uint32_t i = 0; i < count; ++i) {
    char file[4096];
    if (python::text_at(*layout_, Direct{}, frames[i].code + layout_->code_file, file,
                        sizeof file) == 0 ||
        (i == 0 && std::strncmp(file, "<frozen importlib", 17) == 0))
      return 0;
    if (is_own_file(file))
      return find_or_define(writer, &frames[i], 1);
  }
  return 0;
}

bool PythonSites::is_in(const char* function, const char* file) const {
  bool is = false;
  for_each_frame([&](std::uint64_t, std::uint64_t code) {
    char name[256], path[4096];
    is = python::text_at(*layout_, Direct{}, code + layout_->code_name, name, sizeof name) != 0 &&
         std::strcmp(name, function) == 0 &&
         python::text_at(*layout_, Direct{}, code + layout_->code_file, path, sizeof path) != 0 &&
         ends_with(path, file);
    return false;
  });
  return is;
}

/// The main thread sits in `_engine_run_backward` until the work that it waits for is done, so from
/// there outwards its frames stay as they are; what is further in may change while it is read. And
/// it may leave before, by another thread's exception.
std::uint32_t PythonSites::walk_backward(const CarefulPages& memory, RawFrame* frames) const {
  if (main_thread_ == 0 || finalizing_() != 0)
    return 0;
  std::uint32_t count = 0;
  std::uint64_t innermost = 0;
  const auto runs_backward = [&](const RawFrame& frame) {
    char name[64];
    return python::text_at(*layout_, memory, frame.code + layout_->code_name, name, sizeof name) !=
               0 &&
           std::strcmp(name, "_engine_run_backward") == 0;
  };
  python::walk(*layout_, memory, main_thread_, code_type_,
               [&](std::uint64_t frame, const RawFrame& raw) {
                 if (count == 0 && !runs_backward(raw))
                   return true;
                 innermost = count == 0 ? frame : innermost;
                 frames[count < kFramesMax ? count++ : kFramesMax - 1] = raw;
                 return true;
               });
  RawFrame now;
  const bool is_there =
      count != 0 && python::load_code(*layout_, Careful{}, innermost, now.code) &&
      python::load(Careful{}, innermost + layout_->frame_instruction, now.instruction) &&
      now.code == frames[0].code && now.instruction == frames[0].instruction;
  return is_there ? count : 0;
}

std::uint32_t PythonSites::site(history::Writer& writer, std::int32_t backward) const {
  const Kind kind = kind_of_this_thread();
  const bool for_main = kind == Kind::kGloo || (kind == Kind::kOther && backward >= 0);
  void* const thread = for_main || finalizing_() != 0 ? nullptr : this_thread_();
  const KnownPythonStacks known(*layout_, code_type_);
  if (thread != nullptr) {
    if (const std::uint32_t site = known.find(reinterpret_cast<std::uint64_t>(thread)); site != 0)
      return site;
  }
  RawFrames frames;
  const std::uint32_t count = walk(frames.data());
  if (for_main) {
    if (const std::uint32_t site = site_for_main(writer, frames.data(), count, backward); site != 0)
      return site;
  }
  const std::uint32_t site = find_or_define(writer, frames.data(), count);
  if (thread != nullptr && site != 0)
    known.keep(reinterpret_cast<std::uint64_t>(thread), site);
  return site;
}

std::uint32_t PythonSites::find_or_define(history::Writer& writer, const RawFrame* frames,
                                          std::uint32_t count) const {
  std::uint64_t key = 0;
  if (count == 0 || !key_of(Direct{}, frames, count, key))
    return 0;
  const std::uint32_t known = writer.find_site(key);
  return known != history::InternTable::kNotFound ? known
                                                  : define(writer, Direct{}, key, frames, count);
}

/// During one backward() the main thread's part of the stack is the same, and is read once: that
/// takes about 20 us at depth 30.
std::uint32_t PythonSites::site_for_main(history::Writer& writer, RawFrame* frames,
                                         std::uint32_t own, std::int32_t backward) const {
  struct Read {
    std::int32_t backward;
    std::uint64_t key;
  };
  static thread_local Read last{-1, 0};
  RawFrames main;
  const auto read = [&](const CarefulPages& memory, std::uint64_t& key) {
    const std::uint32_t count = walk_backward(memory, main.data());
    if (count == 0 || !key_of(memory, main.data(), count, key))
      key = 0;
    return count;
  };
  if (backward < 0 || last.backward != backward) {
    read(CarefulPages{}, last.key);
    last.backward = backward;
  }
  std::uint64_t key = 0;
  if (last.key == 0 || !key_of(Direct{}, frames, own, key))
    return 0;
  key = history::mix(key, last.key);
  const std::uint32_t known = writer.find_site(key);
  if (known != history::InternTable::kNotFound)
    return known;
  const std::uint32_t room = kFramesMax - own;
  if (room == 0 || !are_of_torch(*layout_, frames, own))  // The user's code says where it stands.
    return define(writer, Direct{}, key, frames, own);
  CarefulPages memory;
  std::uint64_t again = 0;
  std::uint32_t count = read(memory, again);
  if (again != last.key)
    return 0;
  if (count > room)
    main[room - 1] = main[count - 1];
  count = count < room ? count : room;
  std::memcpy(frames + own, main.data(), count * sizeof(RawFrame));
  return define(writer, memory, key, frames, own + count);
}

/// Code objects come and go, and another may get the same address: what belongs to one and costs a
/// load or two is part of the key. The hash of the name is that of its characters.
template <class Memory>
bool PythonSites::key_of(const Memory& memory, const RawFrame* frames, std::uint32_t count,
                         std::uint64_t& key) const {
  key = count;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint64_t code = frames[i].code;
    std::uint64_t name = 0, hash = 0, constants = 0, lines = 0, first_line = 0;
    if (!python::load(memory, code + layout_->code_name, name) ||
        !python::load(memory, name + python::kTextHash, hash) ||
        !python::load(memory, code + python::kCodeConstants, constants) ||
        !python::load(memory, code + layout_->code_lines, lines) ||
        !python::load(memory, code + layout_->code_first_line, first_line))
      return false;
    std::uint64_t own = frames[i].instruction * 0x9e3779b97f4a7c15ULL;
    own ^= constants * 0xc2b2ae3d27d4eb4fULL;
    own ^= lines * 0x165667b19e3779f9ULL;
    own ^= hash;
    own ^= first_line << 32;
    key = history::mix(key, own ^ code);
  }
  return true;
}

template <class Memory>
std::uint32_t PythonSites::define(history::Writer& writer, const Memory& memory, std::uint64_t key,
                                  const RawFrame* frames, std::uint32_t count) const {
  const history::QuietCall quiet;
  std::array<history::SiteFrame, kFramesMax> described;
  std::array<char, 32768> texts;
  std::size_t used = 0;
  const auto text = [&](std::uint64_t address) -> const char* {
    char* const at = texts.data() + used;
    const std::size_t bytes = python::text_at(*layout_, memory, address, at, texts.size() - used);
    used += bytes;
    return bytes == 0 ? "" : at;
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    python::Position position;
    python::position_of(*layout_, memory, frames[i], position);
    described[i] = {text(frames[i].code + layout_->code_file), position.packed(),
                    text(frames[i].code + layout_->code_name), position.line};
  }
  return writer.define_site(key, described.data(), count);
}

}  // namespace lockstep::tap
