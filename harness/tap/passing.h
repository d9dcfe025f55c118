// One call on its way through the tap: recorded before it is passed on, with its return and with
// what will tell that its result is there.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <typeinfo>

#include "harness/tap/groups.h"
#include "harness/tap/operation.h"
#include "harness/tap/python_sites.h"
#include "harness/tap/watch.h"

#pragma GCC visibility push(hidden)

namespace lockstep::tap {

/// What records, of the whole process. Never destroyed: other threads may still be in a call while
/// the process exits.
struct Recorder {
  history::Writer* writer{};
  Groups* groups{};
  bool sites{};
  bool python{};  ///< Its frames can be read, and say more than return addresses.
  PythonSites python_sites{};
  bool backends{};  ///< Calls on backends themselves are seen.
  std::atomic<bool> device_told{};
  bool watching{};  ///< See watch.h.
};

extern Recorder* recorder;  ///< Null until the tap has begun.

/// Of the thread that calls; the innermost `skip` native frames are ours.
std::uint32_t call_site(std::uint32_t skip);

/// Whether Works of one type have a future. Asking one that has none throws, so it is asked once.
class FutureSupport {
 public:
  enum class Answer : std::uint8_t { kNotAsked, kYes, kNo };

  [[nodiscard]] Answer known(const std::type_info& type) const;
  void learn(const std::type_info& type, Answer answer);

 private:
  struct Entry {
    std::atomic<const std::type_info*> type{};
    std::atomic<Answer> answer{};
  };
  std::array<Entry, 4> entries_{};
};

/// What a call is being passed on to by this thread: what that one calls in its turn, in the same
/// thread, is part of it. Null if there is none.
class Inside {
 public:
  explicit Inside(const void* callee) : before_(of_thread()) { of_thread() = callee; }
  ~Inside() { of_thread() = before_; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

  static const void*& of_thread() {
    static thread_local const void* callee = nullptr;
    return callee;
  }

 private:
  const void* before_;
};

class Passing {
 public:
  /// `known` as enter() gave it. The innermost `skip` frames of the site are ours.
  Passing(Groups::Known& known, Call& call, std::uint32_t skip);
  /// Without came_back(): by exception.
  ~Passing();
  Passing(const Passing&) = delete;
  Passing& operator=(const Passing&) = delete;

  /// With its result, which nothing else tells.
  void came_back() { failed_ = false; }
  /// `on_host(work)`: of collectives on a GPU, too, the future tells when they are done.
  template <class OnHost>
  void came_back(c10d::Work* work, FutureSupport& futures, const OnHost& on_host) {
    failed_ = false;
    follow(future_of(work, futures, on_host));
  }

 private:
  using Future = c10::intrusive_ptr<c10::ivalue::Future>;
  template <class OnHost>
  Future future_of(c10d::Work* work, FutureSupport& futures, const OnHost& on_host) const;
  void follow(const Future& future);

  Groups::Known& known_;
  history::Ticket ticket_;
  c10::intrusive_ptr<Flight> flight_{};  ///< Of the watch.
  bool on_device_;
  bool on_gpu_;
  enum class Result : std::uint8_t { kThere, kUntold, kLater } result_{Result::kThere};
  bool failed_{true};
};

/// The future that tells when the result of `work` is there; null if nothing will tell.
template <class OnHost>
Passing::Future Passing::future_of(c10d::Work* work, FutureSupport& futures,
                                   const OnHost& on_host) const {
  if (work == nullptr)
    return {};
  const std::type_info& type = typeid(*work);
  const FutureSupport::Answer known = futures.known(type);
  if (known == FutureSupport::Answer::kNo)
    return {};
  Future future;
  try {
    future = work->getFuture();
  } catch (const std::exception&) {
    // Told by exception only; see learn().
  }
  const bool tells = on_device_ ? on_gpu_ && on_host() : future && future->devices().empty();
  if (!tells)
    future.reset();
  if (known == FutureSupport::Answer::kNotAsked)
    futures.learn(type, future ? FutureSupport::Answer::kYes : FutureSupport::Answer::kNo);
  return future;
}

}  // namespace lockstep::tap

#pragma GCC visibility pop
