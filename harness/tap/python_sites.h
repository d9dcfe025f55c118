// Call sites of a Python program: the frames of the calling thread, read without the GIL and
// without touching a reference count, for the interpreters whose layout is known.
#pragma once

#include <cstddef>
#include <cstdint>

#include "harness/history/writer.h"
#include "harness/python/frames.h"
#include "harness/tap/own_memory.h"

#pragma GCC visibility push(hidden)

namespace lockstep::tap {

class PythonSites {
 public:
  /// To be called by a thread that holds the GIL, as the one does that imports torch: what is read
  /// of its frames is compared with what the interpreter says of them. False: no Python, or an
  /// interpreter that is not read rightly; then site() must not be called.
  bool begin();

  /// Id of the stack that the calling thread is on; 0 if it has no Python frames. At depth 30 a
  /// stack that was seen before costs about 150 ns. `backward`: the one that this thread works for,
  /// negative if for none. Autograd has a thread for each GPU, and Gloo's runs what is to follow a
  /// collective: while the main thread waits for them in backward() they stand on its stack, too.
  std::uint32_t site(history::Writer& writer, std::int32_t backward) const;

  /// Id of the innermost line that is neither Python's own nor an installed package's, alone; 0 if
  /// there is none, or the interpreter itself is importing.
  std::uint32_t own_line(history::Writer& writer) const;

  /// The innermost frame is this function of a file whose name ends so.
  [[nodiscard]] bool is_in(const char* function, const char* file) const;

  /// The same stack as text, a line a frame, innermost first: position, line, function, file, with
  /// tabs between. Returns its bytes without the zero at the end.
  std::size_t text(char* to, std::size_t size) const;

  /// Calls `take(frame address, code address)` for the calling thread's frames, innermost first,
  /// until it answers false.
  template <class Take>
  void for_each_frame(Take take) const {
    void* const thread = this_thread_();
    if (thread != nullptr && finalizing_() == 0)
      python::walk(
          *layout_, Direct{}, reinterpret_cast<std::uint64_t>(thread), code_type_,
          [&](std::uint64_t frame, const python::RawFrame& raw) { return take(frame, raw.code); });
  }
  [[nodiscard]] const python::Layout& layout() const { return *layout_; }

 private:
  std::uint32_t walk(python::RawFrame* frames) const;
  std::uint32_t walk_backward(const CarefulPages& memory, python::RawFrame* frames) const;
  std::uint32_t find_or_define(history::Writer& writer, const python::RawFrame* frames,
                               std::uint32_t count) const;
  std::uint32_t site_for_main(history::Writer& writer, python::RawFrame* frames, std::uint32_t own,
                              std::int32_t backward) const;
  template <class Memory>
  std::uint32_t define(history::Writer& writer, const Memory& memory, std::uint64_t key,
                       const python::RawFrame* frames, std::uint32_t count) const;
  template <class Memory>
  bool key_of(const Memory& memory, const python::RawFrame* frames, std::uint32_t count,
              std::uint64_t& key) const;

  const python::Layout* layout_ = nullptr;
  std::uint64_t code_type_ = 0;
  std::uint64_t main_thread_ = 0;  // Its state; 0: not known.
  void* (*this_thread_)() = nullptr;
  int (*finalizing_)() = nullptr;
};

}  // namespace lockstep::tap

#pragma GCC visibility pop
