// Writes the seed corpus of the fuzzers: what the real writers write, with the areas moved
// together. usage: make_corpus DIR   (makes DIR/fuzz_reader, DIR/fuzz_live and DIR/fuzz_dumps)
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>

#include "harness/history/journal.h"
#include "harness/history/run_json.h"
#include "harness/history/tensor_file.h"
#include "harness/history/writer.h"
#include "tests/fuzz/fuzz_input.h"

namespace fs = std::filesystem;

namespace lockstep::history {
namespace {

/// A history of every operation; `records` of them, some incomplete, point-to-point and overlapping
/// included.
std::vector<std::byte> written_file(const std::string& directory, std::uint64_t records,
                                    bool closed) {
  WriterOptions options;
  options.directory = directory.c_str();
  options.file_bytes = WriterFile::kFileBytesMin;
  options.rank = 0;
  options.world_size = 2;
  const std::unique_ptr<Writer> writer(Writer::open(options));
  if (writer == nullptr)
    std::exit(1);
  const std::vector<std::int32_t> ranks(40, 1);
  GroupInfo info;
  info.name = "dp";
  info.size = 40;
  info.ranks = ranks.data();
  info.rank_count = 2;
  info.from_creation = true;
  const GroupHandle dp = writer->define_group(info);
  info.rank_count = 40;
  info.from_creation = false;
  const GroupHandle late = writer->define_group(info);
  const SiteFrame frames[] = {{"train.py", 1, "step", 2}, {"libuser.so", 64, "", 0}};
  const std::uint32_t site = writer->define_site(1, frames, 2);
  for (std::uint64_t i = 0; i < records; ++i) {
    Issue call;
    call.op = static_cast<Op>(i % static_cast<std::uint64_t>(Op::kCount));
    call.dtype = DType::kFloat32;
    call.site = i % 2 == 0 ? site : 0;
    const Ticket ticket = writer->issue(i % 5 == 4 ? late : dp, call);
    if (i % 7 != 3 && is_point_to_point(call.op))
      writer->returned_untold(ticket);
    else if (i % 7 != 3)
      writer->returned(ticket);
    if (i % 7 != 3 && i % 11 != 5)
      writer->completed(ticket, i % 13 == 0);
  }
  if (closed)
    writer->close();
  auto text = read_whole(writer->path(), 1U << 30);
  fs::remove(writer->path());
  const auto bytes = std::as_bytes(std::span(*text));
  return {bytes.begin(), bytes.end()};
}

/// The same file with areas as large as their use and a ring of `slots`, which holds its last
/// records.
std::vector<std::byte> compact(std::span<const std::byte> file, std::uint64_t slots) {
  FileHeader header;
  std::memcpy(&header, file.data(), sizeof header);
  std::vector<std::byte> out(sizeof header);
  const auto move = [&](std::uint64_t& offset, std::uint64_t bytes) {
    const std::uint64_t from = offset;
    offset = out.size();
    out.insert(out.end(), file.begin() + static_cast<std::ptrdiff_t>(from),
               file.begin() + static_cast<std::ptrdiff_t>(from + bytes));
  };
  header.definitions_bytes = header.definitions_used;
  move(header.definitions_offset, header.definitions_bytes);
  header.groups_capacity = header.groups_used;
  move(header.groups_offset, header.groups_capacity * sizeof(GroupEntry));
  header.digests_capacity = header.digests_used;
  move(header.digests_offset, header.digests_capacity * sizeof(DigestEntry));
  header.pending_capacity = 4;
  move(header.pending_offset, header.pending_capacity * sizeof(Slot));
  const std::uint64_t next = header.next_record,
                      size = std::min(slots, std::max<std::uint64_t>(next, 1));
  const std::uint64_t old_ring = header.ring_offset, old_size = header.reserved_slots;
  header.ring_offset = out.size();
  header.ring_capacity = header.reserved_slots = size;
  header.ring_final = next > size ? size : 0;
  out.resize(out.size() + size * sizeof(Slot));
  for (std::uint64_t record = next > size ? next - size : 0; record < next; ++record) {
    Slot slot;
    std::memcpy(&slot, file.data() + old_ring + record % old_size * sizeof slot, sizeof slot);
    for (std::uint64_t* const word : {&slot.returned, &slot.completed})
      *word = empty_stamp(record / size) | (*word & ((1ULL << 49) - 1));
    std::memcpy(out.data() + header.ring_offset + record % size * sizeof slot, &slot, sizeof slot);
  }
  // An old incomplete record waits in the pending area.
  if (next > size && size > 3) {
    Slot slot;
    std::memcpy(&slot, file.data() + old_ring + 3 * sizeof slot, sizeof slot);
    std::memcpy(out.data() + header.pending_offset, &slot, sizeof slot);
  }
  std::memcpy(out.data(), &header, sizeof header);
  return out;
}

void save(const fs::path& path, char kind, std::span<const std::byte> bytes) {
  std::ofstream out(path, std::ios::binary);
  out.put(kind);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
}

void save_text(const fs::path& path, char kind, const std::string& text) {
  save(path, kind, std::as_bytes(std::span(text)));
}

std::string journal_text(const fs::path& directory) {
  const std::string path = (directory / "journal").string();
  auto writer = JournalWriter::create(path);
  if (!writer)
    std::exit(1);
  (void)writer->append(ProcessStart{.at_ns = 1, .rank = Rank{0}, .pid = 7});
  (void)writer->append(
      ProcessEnd{.at_ns = 2, .rank = Rank{0}, .pid = 7, .exit_status = 0, .our_reason = "x"});
  (void)writer->append(Acted{.at_ns = 3, .action = "TERM", .reason = "y"});
  (void)writer->append(StateSample{.at_ns = 4,
                                   .threads = {{8, 'S', "futex", 1, 2}},
                                   .children = {{9, "c", 'Z', "w"}},
                                   .waits_for_child = 9,
                                   .held_by = {Rank{1}}});
  (void)writer->append(
      StackSample{.at_ns = 5, .frames = {{"m", 1, "f", 2, "g"}}, .variables = {{0, "i", 3}}});
  Request request{.at_ns = 6, .id = 1, .message = "step"};
  (void)writer->append(request);
  request.answered_ns = 7;
  request.raised_at.frames = {{"m", 1, "", 0, ""}};
  (void)writer->append(request);
  (void)writer->append(
      Observation{.at_ns = 8, .name = "grad/w", .dtype = "F32", .shape = {1}, .file = "tensors/a"});
  (void)writer->append(Mark{.at_ns = 9, .name = "m"});
  (void)writer->append(Note{.at_ns = 10, .text = "n"});
  (void)writer->append(Raised{.at_ns = 11, .text = "E: e", .raised_at = {{{"m", 1, "f", 2, "g"}}}});
  (void)writer->append(Leftover{.at_ns = 12, .kind = "process", .ports = {"127.0.0.1:80"}});
  (void)writer->append(Unwaited{.at_ns = 13, .name = "z", .parent_waits_for = -1});
  (void)writer->append(Descriptors{.at_ns = 14, .open = 3, .limit = 9, .kinds = {{"pipe", 3}}});
  (void)writer->close();
  std::string text = *read_whole(path, 1U << 20);
  fs::remove(path);
  return text;
}

void save_bytes(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string pickled_text(const std::string& text) {
  return std::string("X") + static_cast<char>(text.size()) + std::string(3, '\0') + text;
}

std::string pickled_list(const std::string& items) { return "](" + items + "e"; }
std::string pickled_map(const std::string& items) { return "}(" + items + "u"; }

/// As PyTorch writes them, with a shared frame, and numbers of each size.
std::string pickled_dump() {
  const auto text = pickled_text;
  const std::string sizes = pickled_list(pickled_list(std::string("K\x04M\x00\x02", 5)));
  std::string entries;
  for (const char seq : {'\1', '\2', '\3'}) {
    const std::string frame = seq == '\1'
                                  ? pickled_map(text("name") + text("step") + text("filename") +
                                                text("t.py") + text("line") + "K\x07") +
                                        std::string("q\0", 2)
                                  : std::string("h\0", 2);
    entries += pickled_map(
        text("frames") + pickled_list(frame) + text("record_id") + "K" + seq + text("pg_id") +
        std::string("K\0", 2) + text("process_group") + text("0") + text("default_pg") + "\x86" +
        text("collective_seq_id") + "K" + seq + text("profiling_name") +
        text(seq == '\3' ? "nccl:send 0->1" : "nccl:all_reduce") + text("time_created_ns") +
        "\x8a\x08" + std::string(8, '\x11') + text("input_sizes") + sizes + text("output_sizes") +
        sizes + text("input_dtypes") + pickled_list(text("Float")) + text("state") +
        text(seq == '\1' ? "completed" : "started") + text("time_discovered_started_ns") + "N" +
        text("retired") + "\x89" + text("timeout_ms") + "J\x10\x27\x01\x01" + text("is_p2p") +
        (seq == '\3' ? "\x88" : "\x89") + text("duration_ms") + "G@\t!\xfbTD-\x18");
  }
  const std::string config = pickled_map(text("name") + text("0") + text("desc") +
                                         text("default_pg") + text("ranks") + text("[0, 1]"));
  return "\x80\x02" +
         pickled_map(text("version") + text("2.10") + text("pg_config") +
                     pickled_map(text("0") + config) + text("entries") + pickled_list(entries)) +
         ".";
}

void save_dumps(const fs::path& folder) {
  fs::create_directories(folder);
  save_bytes(folder / "pickle", pickled_dump());
  save_bytes(folder / "json",
             R"({"entries":[{"collective_seq_id":1,"input_dtypes":["Float"],"input_sizes":[[4]],)"
             R"("is_p2p":false,"process_group":["0","default_pg"],"profiling_name":)"
             R"("gloo:all_reduce","record_id":0,"retired":true,"state":"scheduled",)"
             R"("time_created_ns":17,"timeout_ms":9}],"pg_config":{"0":{"desc":"d","name":"0",)"
             R"("ranks":"[0, 1]"}},"pg_status":{},"version":"2.4"})");
}

int make(const fs::path& root) {
  save_dumps(root / "fuzz_dumps");
  fs::create_directories(root / "fuzz_reader");
  fs::create_directories(root / "fuzz_live");
  const std::string work = root.string();
  int number = 0;
  for (const std::uint64_t records : {0ULL, 3ULL, 21ULL, 60ULL, 2500ULL}) {
    for (const bool closed : {false, true}) {
      const auto file = compact(written_file(work, records, closed), 24);
      const auto input = shrink(file);
      save(root / "fuzz_reader" / ("p" + std::to_string(number)), 'p', input);
      // Two changes: the counter of records moves, a slot is emptied.
      std::vector<std::byte> live(22 + input.size());
      const std::uint64_t next = records + 4;
      std::memcpy(live.data() + 2, &next, sizeof next);
      live[21] = std::byte{1};
      std::memcpy(live.data() + 22, input.data(), input.size());
      save(root / "fuzz_live" / ("l" + std::to_string(number++)), 2, live);
    }
  }
  save_text(root / "fuzz_reader" / "journal", 'j', journal_text(root));
  const std::string tensors = (root / "tensors").string();
  (void)write_tensors(tensors, {make_tensor("x", "F16", {2}, std::vector<double>{1, 2}),
                                make_tensor("y", "I64", {}, std::vector<double>{3}),
                                make_tensor("z", "BF16", {1}, std::vector<double>{4}),
                                make_tensor("b", "BOOL", {0}, {})});
  save_text(root / "fuzz_reader" / "tensors", 't', *read_whole(tensors, 1U << 20));
  fs::remove(tensors);
  Plan plan{.id = "i",
            .command = {"c"},
            .options = {{"a", "b"}},
            .expected_marks = {"m"},
            .parameters = {{"w", 1}}};
  save_text(root / "fuzz_reader" / "plan", 'r', plan_to_json(plan, 1, 2));
  save_text(root / "fuzz_reader" / "symbols", 's', symbols_to_json({{"m", 1, "f", 2, "g"}}));
  return 0;
}

}  // namespace
}  // namespace lockstep::history

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_corpus DIR\n");
    return 125;
  }
  return lockstep::history::make(argv[1]);
}
