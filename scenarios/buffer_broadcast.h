// buffer-broadcast: with broadcasting, buffers equal rank 0's at entry of every synchronised
// forward; without it they stay local; and after a forward under no_grad or no_sync one forward
// goes unsynchronised, as in PyTorch.
#pragma once

#include "scenarios/scenario.h"

namespace lockstep {

class BufferBroadcast final : public Scenario {
 public:
  [[nodiscard]] std::string_view name() const override { return "buffer-broadcast"; }
  [[nodiscard]] std::string_view question() const override;
  [[nodiscard]] std::vector<Case> cells() const override;
  [[nodiscard]] Result<void> converse(Conversation& talk, const Case& cell) const override;
};

}  // namespace lockstep
