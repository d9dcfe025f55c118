// What `run` says while the job runs: a word, the time since its begin, a sentence.
#pragma once

#include <functional>
#include <string_view>

#include "harness/session/clock.h"

namespace lockstep::session {

class Notices {
 public:
  using Print = std::function<void(std::string_view)>;

  /// The time is counted from now on.
  Notices(const Clock& clock, Print print);

  void tell(std::string_view word, std::string_view text) const;
  /// A line that belongs to the notice before it.
  void detail(std::string_view text) const;

 private:
  const Clock& clock_;
  Print print_;
  TimePoint begun_;
};

}  // namespace lockstep::session
