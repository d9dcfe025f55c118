// Reads one process file (format.h), finished or still being written, into a Process. What is torn,
// cut off or hostile yields what is certain and a statement of what is missing; memory stays
// bounded by the file.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "harness/base/error.h"
#include "harness/history/byte_source.h"
#include "harness/history/format.h"
#include "harness/history/run.h"

namespace lockstep::history {

/// How far a process has come. Any record, return or completion moves `events`.
struct Head {
  std::uint64_t records{};  ///< Numbers taken so far.
  std::uint64_t events{};   ///< Issued, returned and completed operations so far.
  friend bool operator==(const Head&, const Head&) = default;
};

/// Reads a process file piece by piece: each poll takes what is new since the last.
class ProcessReader {
 public:
  /// `name` is how messages call the file. `collectives_max`: older complete ones are forgotten
  /// (and counted in Process::dropped) once there are twice as many; 0 keeps all that the file
  /// holds.
  ProcessReader(std::unique_ptr<ByteSource> source, std::string name,
                std::size_t collectives_max = 0);

  /// Takes what is new. True if anything was. `final`: nobody writes any more, so what is still
  /// absent is missing. Errors (kMalformedHistory): not a history file; when not final, it may
  /// still become one.
  Result<bool> poll(bool final);

  [[nodiscard]] const Process& process() const { return process_; }
  /// One sentence for each thing that a final poll could not get. A missing closing record is
  /// Process::closed.
  [[nodiscard]] const std::vector<std::string>& missing() const { return missing_; }
  [[nodiscard]] Head head() const { return head_; }
  /// Looks at the counters only, and changes nothing.
  Head read_head();
  /// Exchanges the result with `other`, which must come back before the next poll; for who keeps it
  /// elsewhere.
  void swap(Process& other) { std::swap(process_, other); }

 private:
  /// Ordinals seen in the ring: whether a gap took one of them. All distinct, so count tells.
  struct Ordinals {
    std::uint64_t count{}, lowest{}, highest{};
    void add(std::uint64_t ordinal);
    [[nodiscard]] bool reaches(std::uint64_t issued) const;
  };
  struct GroupOrdinals {
    Ordinals collectives{}, point_to_point{};
  };
  /// Records [begin, end) are in the ring.
  struct Window {
    std::uint64_t begin{}, end{}, slots{};
  };

  bool read_header(FileHeader& header);
  Result<bool> accept(const FileHeader& header);
  bool take_identity(const FileHeader& header);
  [[nodiscard]] Window window_of(const FileHeader& header) const;
  void read_definitions(std::uint64_t used);
  bool parse_definition(const DefinitionHead& head, std::span<const std::byte> body);
  bool parse_site(const DefinitionHead& head, std::span<const std::byte> body);
  bool parse_begun(std::span<const std::byte> body);
  bool parse_creation(const DefinitionHead& head, std::span<const std::byte> body);
  std::vector<GroupEntry> group_entries(std::uint64_t used);
  std::uint64_t read_groups(std::uint64_t used);
  void take_group(std::size_t index, const GroupEntry& entry);
  void describe_group(std::size_t index, const GroupEntry& entry);
  void read_digests(std::uint64_t used);
  void read_slots(const Window& window, std::uint64_t begin, std::uint64_t end, bool final);
  void read_chunk(const Window& window, std::uint64_t begin, std::uint64_t count, bool final);
  bool take_slot(const Slot& slot, std::uint64_t record, bool final);
  void refresh_open(const Window& window);
  std::vector<Slot> pending_slots(bool final);
  void read_pending(const Window& window, bool final);
  void set_stamps(Collective& collective, const Slot& slot);
  Collective* find(std::uint64_t record);
  void mark_overlaps();
  void forget_old();
  void conclude(const FileHeader& header, const Window& window);
  void conclude_gaps(const FileHeader& header, const Window& window);
  [[nodiscard]] bool gap_took_nothing() const;
  void note_absent(std::uint64_t begin, std::uint64_t count);
  void damage(const std::string& what);

  std::unique_ptr<ByteSource> source_;
  std::size_t collectives_max_;
  Process process_;
  std::vector<std::string> missing_;
  Head head_;

  bool accepted_{};
  FileHeader layout_{};  // As first accepted; later headers only give counters.
  std::vector<std::string> strings_{""};
  std::size_t string_bytes_{};
  std::uint64_t definitions_read_{};
  bool definitions_broken_{};
  std::vector<std::vector<Rank>> group_ranks_;  // Those that came as a definition, by group.
  std::vector<std::uint32_t> group_sites_;
  std::vector<std::uint32_t> renamed_;  // By group: as last read.
  std::uint64_t digests_read_{};
  std::uint64_t next_{};               // Records below have been looked at.
  std::vector<std::uint64_t> absent_;  // Looked at, not there (yet).
  std::uint64_t absent_unlisted_{};    // Beyond the cap of that list.
  std::vector<std::uint64_t> open_;    // Not returned or not completed (yet).
  std::vector<GroupOrdinals> ordinals_;
  std::size_t overlaps_marked_{};  // Collectives below have been looked at.
  std::vector<std::vector<std::uint64_t>>
      inside_;  // Per group: records that may be inside their call.
  std::vector<Slot> chunk_, recheck_;
};

/// A finished file at once.
struct ProcessFile {
  Process process{};
  std::vector<std::string> missing{};
};
Result<ProcessFile> read_process(std::unique_ptr<ByteSource> source, const std::string& name);

}  // namespace lockstep::history
