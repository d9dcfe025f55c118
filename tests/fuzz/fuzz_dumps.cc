// libFuzzer: arbitrary bytes as the dump of a Flight Recorder.
#include <cstdint>
#include <cstdlib>

#include "harness/history/dump_reader.h"
#include "harness/history/dump_ring.h"

namespace lockstep::history {
namespace {

void require(bool holds) {
  if (!holds)
    std::abort();
}

void read_one(std::span<const std::byte> input) {
  MemorySource source(input);
  DumpRing ring({{"0/nccl", {0, 64}}});
  const auto head = read_dump(source, "fuzz", [&](const DumpEntry& entry, const DumpWords& words) {
    ring.add(entry, words);
  });
  if (!head) {
    require(!head.error().what.empty());
    return;
  }
  ring.finish(*head);
  for (const RingGroup& group : ring.groups()) {
    require(group.first_seq <= group.end_seq && group.done_before <= group.end_seq);
    for (const Collective& call : group.kept)
      require(call.site < ring.sites().size() && call.seq < group.end_seq && call.op < Op::kCount);
    for (const Collective& call : group.point_to_point)
      require(call.site < ring.sites().size() && is_point_to_point(call.op));
  }
}

}  // namespace
}  // namespace lockstep::history

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  lockstep::history::read_one(std::as_bytes(std::span(data, size)));
  return 0;
}
