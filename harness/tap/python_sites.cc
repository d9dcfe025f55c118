#include "harness/tap/python_sites.h"

#include <dlfcn.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace lockstep::tap {
namespace {

using history::kFramesMax;
using python::RawFrame;
using RawFrames = std::array<RawFrame, kFramesMax>;

/// Our own memory, by plain loads.
struct Direct {
  bool read(std::uint64_t address, void* to, std::size_t bytes) const {
    std::memcpy(to, reinterpret_cast<const void*>(address), bytes);
    return true;
  }
};

/// Our own memory by way of the kernel, where a wrong address is an error and not a crash.
struct Careful {
  bool read(std::uint64_t address, void* to, std::size_t bytes) const {
    const iovec local{to, bytes};
    const iovec remote{reinterpret_cast<void*>(address), bytes};
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(bytes);
  }
};

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
  const bool all = same == count && (frame == nullptr || count == kFramesMax);
  if (frame != nullptr)
    interpreter.release(frame);
  return count != 0 && all;
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

std::uint32_t PythonSites::site(history::Writer& writer) const {
  RawFrames frames;
  const std::uint32_t count = walk(frames.data());
  if (count == 0)
    return 0;
  const std::uint64_t key = key_of(frames.data(), count);
  const std::uint32_t known = writer.find_site(key);
  return known != history::InternTable::kNotFound ? known
                                                  : define(writer, key, frames.data(), count);
}

/// Code objects come and go, and another may get the same address: what belongs to one and costs a
/// load or two is part of the key. The hash of the name is that of its characters.
std::uint64_t PythonSites::key_of(const RawFrame* frames, std::uint32_t count) const {
  std::uint64_t key = count;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto* const code = reinterpret_cast<const char*>(frames[i].code);
    const auto word = [](const char* at) {
      std::uint64_t value;
      std::memcpy(&value, at, sizeof value);
      return value;
    };
    const std::uint64_t name = word(code + layout_->code_name);
    std::uint64_t own = frames[i].instruction * 0x9e3779b97f4a7c15ULL;
    own ^= word(code + python::kCodeConstants) * 0xc2b2ae3d27d4eb4fULL;
    own ^= word(code + layout_->code_lines) * 0x165667b19e3779f9ULL;
    own ^= word(reinterpret_cast<const char*>(name) + python::kTextHash);
    own ^= word(code + layout_->code_first_line) << 32;
    key = history::mix(key, own ^ frames[i].code);
  }
  return key;
}

std::uint32_t PythonSites::define(history::Writer& writer, std::uint64_t key,
                                  const RawFrame* frames, std::uint32_t count) const {
  const history::QuietCall quiet;
  std::array<history::SiteFrame, kFramesMax> described;
  std::array<char, 32768> texts;
  std::size_t used = 0;
  const auto text = [&](std::uint64_t address) -> const char* {
    char* const at = texts.data() + used;
    const std::size_t bytes = python::text_at(*layout_, Direct{}, address, at, texts.size() - used);
    used += bytes;
    return bytes == 0 ? "" : at;
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    python::Position position;
    python::position_of(*layout_, Direct{}, frames[i], position);
    described[i] = {text(frames[i].code + layout_->code_file), position.packed(),
                    text(frames[i].code + layout_->code_name), position.line};
  }
  return writer.define_site(key, described.data(), count);
}

}  // namespace lockstep::tap
