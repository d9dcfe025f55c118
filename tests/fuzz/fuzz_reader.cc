// libFuzzer: arbitrary bytes as a process file, a journal, a tensor file, a run.json or a
// symbols.json. The first byte of the input says which.
#include <cstdint>

#include "harness/history/journal.h"
#include "harness/history/run_json.h"
#include "harness/history/tensor_file.h"
#include "tests/fuzz/fuzz_input.h"

namespace lockstep::history {
namespace {

void read_one(char kind, std::span<const std::byte> input) {
  const std::string text(reinterpret_cast<const char*>(input.data()), input.size());
  switch (kind) {
    case 'j': {
      Run run;
      JournalReader(std::make_unique<MemorySource>(input), "fuzz").poll(run, true);
      if (run.journal_complete && !run.missing.empty())
        std::abort();
      return;
    }
    case 't': {
      auto file = TensorFile::open(std::make_unique<MemorySource>(input), "fuzz");
      for (std::size_t i = 0; file && i < file->entries().size(); ++i)
        (void)file->read(file->entries()[i]);
      return;
    }
    case 'r':
      (void)plan_from_json(text, "fuzz");
      return;
    case 's':
      (void)symbols_from_json(text);
      return;
    default: {
      const std::vector<std::byte> file = expand(input);
      const auto read = read_process(std::make_unique<MemorySource>(file), "fuzz");
      if (read)
        require_sound(read->process);
    }
  }
}

}  // namespace
}  // namespace lockstep::history

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 0)
    lockstep::history::read_one(static_cast<char>(data[0]),
                                std::as_bytes(std::span(data + 1, size - 1)));
  return 0;
}
