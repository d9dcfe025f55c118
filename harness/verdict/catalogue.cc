#include "harness/verdict/catalogue.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <vector>

#include "harness/verdict/catalogue_parts.h"

namespace lockstep {
namespace {

constexpr std::array kEndsAndMatching{
    CatalogueEntry{
        "LS101", "rank-died", "a rank died first",
        "A rank was killed by a signal, raised an exception or exited non-zero before any rank had "
        "left the common "
        "order of collectives. Whatever the other ranks reported afterwards (closed connections, "
        "timeouts, aborts) "
        "follows from it and is only counted. Signals that lockstep sent itself never count.",
        "an exception in the program of that rank\n"
        "the kernel's out-of-memory killer (SIGKILL), a crash in native code (SIGSEGV, SIGABRT)\n"
        "an assertion or a check of the input that holds on the other ranks only",
        "the place given as `raised`, and the end of logs/<rank>.err\n"
        "dmesg or the scheduler's log for a SIGKILL nobody of yours sent"},
    CatalogueEntry{"LS102", "left-early", "a rank left while others still need it",
                   "A rank ended with status 0 although the others were inside, or went on to, a "
                   "collective or an init_process_group that it had not "
                   "joined. It did not crash, so nothing else says that the job is incomplete.",
                   "an early return or sys.exit under a rank-dependent condition\n"
                   "a loop that ends sooner on one rank\n"
                   "a host that left the conversation before it was asked to",
                   "the last collective of that rank and the line it came from\n"
                   "the condition that lets this rank, and no other, reach the end of the program"},
    CatalogueEntry{
        "LS103", "will-not-exit", "a rank will not exit",
        "The program of this rank is over, or was asked to end, and the process stays. What keeps "
        "it is named: a "
        "thread that is not a daemon, a child it waits for, a handler that ignores the signal.",
        "a thread started by the program and never joined\n"
        "SIGTERM ignored or caught without leaving\n"
        "a process group whose destructor waits for an unfinished collective",
        "the threads and their stacks in the evidence\n"
        "whether destroy_process_group() is reached on every path"},
    CatalogueEntry{"LS104", "orphan", "a process survives the job",
                   "Every rank has ended and a process that one of them started is still there. Or "
                   "the launcher was killed, the command is over, and the ranks themselves go on. "
                   "They may hold a port, GPU memory "
                   "or shared memory and disturb the next job.",
                   "data loader workers whose parent was killed\n"
                   "a signal of a scheduler that the launcher does not handle\n"
                   "a helper started with setsid or a double fork\n"
                   "a child that was never waited for",
                   "the command line and the parent of the survivor\n"
                   "--allow-survivor NAME if it is meant to stay"},
    CatalogueEntry{"LS105", "zombie", "a child was never reaped",
                   "A process of the job ended and its parent, still alive, never collected its "
                   "status. Its failure, if it "
                   "failed, was seen by nobody. (Of a rank it is a note: lockstep knows how it "
                   "ended).",
                   "Popen without wait\na signal handler that replaced the one which reaps",
                   "the parent named in the evidence, and who should wait for the child there"},
    CatalogueEntry{"LS106", "leftover", "shared memory, a port or a file is left behind",
                   "After the last process ended, something outlived it that the job created: a "
                   "shared memory segment, a "
                   "listening port, a temporary or lock file.",
                   "a kill before the clean-up ran\nthe file_system sharing strategy for "
                   "tensors\na port taken over by a child",
                   "the owner of the leftover, as given in the evidence\nlockstep clean, which "
                   "removes what lockstep started"},
    CatalogueEntry{"LS107", "never-joined", "a rank never joined, or joined twice",
                   "The world has a fixed number of ranks; one of them never became a member, or "
                   "two processes claim the same "
                   "one, or a process of another job took its place. Every collective of the world "
                   "group must then wait, or is done with strangers.",
                   "RANK or WORLD_SIZE set wrongly\na rank that failed before init_process_group\n"
                   "MASTER_ADDR or MASTER_PORT that differ between hosts, a port in use\n"
                   "two jobs of one host that use one MASTER_PORT",
                   "the environment of each rank in run.json\nthe log of the rank that is missing"},
    CatalogueEntry{"LS108", "hidden-failure", "a failure is hidden by exit status 0",
                   "A rank raised, or a child of it failed, and the process still ended with "
                   "status 0. A scheduler or CI would "
                   "take the job for a success.",
                   "except: pass around the main loop\na launcher that does not pass on the status "
                   "of its children",
                   "the exception in the evidence and the handler that swallowed it"},
    CatalogueEntry{"LS109", "launcher-waits-in-order",
                   "the launcher waits for its ranks in the wrong order",
                   "The launcher waits for one rank while another has already failed, so the "
                   "failure is noticed only when the "
                   "first one ends, or never.",
                   "for p in procs: p.join() without looking at the others",
                   "the launcher's wait; wait for any child, and end the rest when one fails"},
    CatalogueEntry{"LS110", "devices", "a GPU was chosen too late, or not at all",
                   "CUDA_VISIBLE_DEVICES was changed after CUDA had been initialised, which reads "
                   "it once: the change has no effect. Or all ranks of a host work on its first "
                   "GPU, although there is one for each: it fills up, and the others idle.",
                   "os.environ[...] = ... after the first CUDA call, torch.cuda.is_available() "
                   "for example\nno torch.cuda.set_device(LOCAL_RANK)",
                   "the value at start and at the time of initialisation, both in the evidence\n"
                   "nvidia-smi: which process has memory on which GPU"},
    CatalogueEntry{
        "LS111", "descriptors", "open descriptors grow towards the limit",
        "A process has nine tenths of the descriptors open that it may have, and most of "
        "them came while it ran. At the limit the next file, socket or shared tensor "
        "fails with `Too many open files`.",
        "tensors of data loader workers that are kept, each of which holds a "
        "descriptor\nfiles or sockets opened in a loop and not closed",
        "the kinds in the evidence, and how many more each step has\n`ulimit -n`"},
    CatalogueEntry{
        "LS201", "different-op", "ranks issue different operations at one place in the order",
        "At the same position of one group's sequence, ranks called different collectives. Each "
        "waits for partners "
        "that never come, or the backend takes one message for another.",
        "a collective under a rank-dependent condition\nevaluation or checkpointing on rank 0 "
        "only\n"
        "an exception handler that issues a barrier",
        "both lines: the culprit's and a peer's\nthe last position at which all ranks agreed"},
    CatalogueEntry{
        "LS202", "different-size", "ranks disagree on the size of a collective",
        "The operation is the same and the number of elements is not. Gloo aborts the receiver of "
        "the larger "
        "message, NCCL hangs or corrupts: the rank that fails is usually not the one at fault.",
        "the last, smaller batch\na model that differs between ranks\nall_gather without padding "
        "to the largest",
        "the sizes per rank in the evidence\nwhere that tensor gets its shape"},
    CatalogueEntry{"LS203", "different-dtype", "ranks disagree on the element type",
                   "Same operation and size, another element type: bytes are exchanged and read as "
                   "something else.",
                   "mixed precision enabled on some ranks only\nan integer count on one rank, a "
                   "float on another\n"
                   "an empty rank that creates a tensor in the default type",
                   "the types per rank in the evidence\nthe line that creates the tensor"},
    CatalogueEntry{"LS204", "different-reduction", "ranks disagree on the reduction",
                   "One rank asks for the sum and another for, say, the maximum. Nothing fails; "
                   "the result depends on the "
                   "algorithm and differs between ranks.",
                   "a reduce op chosen from a rank-local value\ntwo code paths for the same metric",
                   "both lines in the evidence"},
    CatalogueEntry{
        "LS205", "different-root", "ranks disagree on the root",
        "In a rooted operation (broadcast, reduce, gather, scatter) ranks name different roots. "
        "With two roots "
        "each rank keeps its own value; with none everybody waits.",
        "src given as a rank inside the group on one side and as a global rank on the other\n"
        "a root computed from rank-local state",
        "the root per rank in the evidence, as ranks of the group"},
    CatalogueEntry{
        "LS206", "swapped", "two calls that look alike are swapped",
        "Two call sites occur on both ranks and cross: what one rank sends from the first, the "
        "other takes for the "
        "second. If size and type agree nothing fails and values are silently exchanged.",
        "iteration over a set or a dictionary whose order differs\nhooks that fire in another "
        "order\n"
        "two threads that issue on one group",
        "the two lines in the evidence\nthe container or hook that decides their order"},
    CatalogueEntry{"LS207", "extra-call", "a rank makes one call too many",
                   "From this position on, the sequence of one rank is that of the others with a "
                   "call inserted.",
                   "one forward too many on one rank (a broadcast of buffers each)\na retry after "
                   "an exception\n"
                   "logging or evaluation that reduces on one rank only",
                   "the culprit's line, and what led there on that rank only"},
    CatalogueEntry{
        "LS208", "missing-call", "a rank leaves out a call",
        "From this position on, the sequence of one rank is that of the others with a call "
        "removed: it went on to "
        "the next collective without the one the others are in.",
        "continue or return under a rank-dependent condition (a NaN batch, an empty shard)\n"
        "a parameter without gradient whose bucket was not reduced\nan exception that was "
        "swallowed",
        "the peer's line, which the culprit did not reach\nthe culprit's next call, which it "
        "reached instead"},
    CatalogueEntry{
        "LS209", "group-differs", "a group was created differently on its members",
        "Members of a group disagree on who belongs to it, or its number is another group's on "
        "other ranks: PyTorch counts the calls of new_group on each rank, and joins who meets "
        "under one number.",
        "new_group with a list computed per rank\nnew_group called by some of the ranks only",
        "the member lists in the evidence, and the call that a rank left out"},
    CatalogueEntry{
        "LS210", "p2p-unmatched", "a send and its receive do not match",
        "A point-to-point operation has no partner that could still come, or its partner has "
        "another size or type.",
        "tag or peer computed differently on both sides\nan odd number of stages in a pipeline\n"
        "a receive larger or smaller than what is sent",
        "source, destination and tag in the evidence, and both lines"},
    CatalogueEntry{"LS211", "touched-in-flight", "a tensor was touched while a collective used it",
                   "A tensor was written (or, for a result, read) between the start of an "
                   "asynchronous collective and its wait.",
                   "async_op=True without wait\nan in-place operation on a bucket view",
                   "the wait that is missing or comes too late"},
    CatalogueEntry{"LS212", "undefined-result", "a result is used where it is undefined",
                   "The result of a rooted operation was used on a rank that does not receive it, "
                   "for example after reduce on "
                   "a rank other than the root.",
                   "reduce where all_reduce was meant\na metric logged from every rank",
                   "the root, and the line that uses the value"},
};

bool same_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) ==
           std::tolower(static_cast<unsigned char>(y));
  });
}

}  // namespace

std::span<const CatalogueEntry> catalogue_of_ends_and_matching() { return kEndsAndMatching; }

std::span<const CatalogueEntry> catalogue() {
  static const std::vector<CatalogueEntry> all = [] {
    std::vector<CatalogueEntry> entries;
    for (const auto part :
         {catalogue_of_ends_and_matching(), catalogue_of_progress(), catalogue_of_data()})
      entries.insert(entries.end(), part.begin(), part.end());
    std::sort(entries.begin(), entries.end(),
              [](const CatalogueEntry& a, const CatalogueEntry& b) { return a.code < b.code; });
    return entries;
  }();
  return all;
}

const CatalogueEntry* find_code(std::string_view code_or_slug) {
  for (const CatalogueEntry& entry : catalogue()) {
    if (same_ignoring_case(entry.code, code_or_slug) ||
        same_ignoring_case(entry.slug, code_or_slug))
      return &entry;
  }
  return nullptr;
}

}  // namespace lockstep
