#include <array>

#include "harness/verdict/catalogue_parts.h"

namespace lockstep {
namespace {

constexpr std::array kProgress{
    CatalogueEntry{
        "LS301", "absent-rank", "a rank is absent from a collective that others wait in",
        "Some members of a group are inside a collective and another member has not entered it. If "
        "the job was "
        "ended for it, the absence was proven: the missing rank is gone, or waits itself for "
        "something that can no "
        "longer happen. If it only lasted until a limit or an interrupt, the finding says "
        "`likely`. It is a note where the call raised on all that waited, they caught that, left "
        "the group and worked on.",
        "a collective left out on one rank, which then has nothing more to do\n"
        "a rank that is still busy: a slow loader, a download, a checkpoint\na rank that ended",
        "the line where the absent rank is, or was last\nthe line where its peers wait"},
    CatalogueEntry{
        "LS302", "wait-cycle", "ranks wait for each other in a circle",
        "Every rank of the circle is inside an operation whose partner is inside another one. None "
        "of them can ever "
        "finish.",
        "two groups used in opposite order on two ranks\na call on one of several groups left out "
        "by "
        "one rank: a batch with nothing to count, a condition on its own data\nsend against send, "
        "or "
        "receive against receive\n"
        "different collectives at the same place of one group",
        "the operation and the line of each rank in the evidence, in the order of the circle"},
    CatalogueEntry{
        "LS303", "stalled-outside", "a rank is stalled on something outside collectives",
        "The others wait for a rank that is not in a collective but asleep on something with a "
        "name: a data loader "
        "worker, a lock, the store, a file, a pipe.",
        "a loader worker that died or hangs\na lock that was held at fork\na slow file system",
        "what the rank sleeps on, and the process on the other side of it"},
    CatalogueEntry{"LS304", "slow", "a rank made the others wait, and came",
                   "A rank entered a collective long after the others and the job went on. A note, "
                   "never an error.",
                   "uneven work, a first-time compilation, a download, a checkpoint on one rank",
                   "how often it is the same rank"},
    CatalogueEntry{
        "LS305", "uneven-batches", "ranks ran different numbers of batches",
        "One rank stopped after whole repetitions of its pattern of calls while the others went on "
        "with the next "
        "one. The rank that ran out is a fact; whether its data or the others' are wrong is not.",
        "shards of different length\na sampler without drop_last or padding\nan iterable dataset "
        "split unevenly",
        "the number of batches per rank\ndrop_last, padding in the sampler, or Join"},
    CatalogueEntry{"LS306", "left-loop", "ranks left a loop at different steps",
                   "A rank left from inside the body of a loop that the others stayed in.",
                   "early stopping decided on a local value\nbreak on an error of one rank",
                   "the condition, and whether all ranks agree on it (all_reduce of the flag)"},
    CatalogueEntry{"LS307", "everyone-inside",
                   "everyone is inside the same collective and it does not finish",
                   "All members issued the same operation with the same arguments and none of them "
                   "gets out. The program is "
                   "right as far as this call goes; transport, driver or device is not.",
                   "a broken link or interface\na device that hangs\na firewall between hosts\n"
                   "a data-dependent hang inside the backend",
                   "the backend's own logs\nwhich ranks share a host, a switch, a device"},
};

constexpr std::array kItself{
    CatalogueEntry{"LS901", "history-incomplete", "the history is incomplete",
                   "Something that happened may not be on record: a file is missing, torn or "
                   "without its closing record, a "
                   "group was met after it had been used, or a collective completed that a member "
                   "is not known to have issued. "
                   "What follows from the absence of a record is then not decided, and nobody is "
                   "blamed by it.",
                   "a process killed while it wrote\na host without lockstep\na library that calls "
                   "a backend directly\n"
                   "a full disk",
                   "the sentences under `unseen` or in the reason, which name the file or group"},
    CatalogueEntry{
        "LS902", "events-dropped", "events were dropped",
        "The recording ran out of space and old or new events were given up. Counts and digests go "
        "on, so most "
        "questions are still answered; those that need the dropped events are undecided.",
        "a very long run in the default 64 MiB per process\na full disk",
        "the drop counters per rank\na larger ring"},
    CatalogueEntry{"LS903", "checker-failed", "a checker failed",
                   "A rule of lockstep could not be applied because of an error of its own. "
                   "Nothing is claimed about the job.",
                   "a bug of lockstep", "the reason, and the run directory for a report"},
    CatalogueEntry{"LS904", "host-broke-protocol", "a rank host broke the protocol",
                   "A host of the conversation answered something that is no answer, answered "
                   "twice, late or not at all, or "
                   "the host that computes reference values ended.",
                   "something else written to the conversation's descriptor\na host of another "
                   "protocol version\n"
                   "a host that is out of memory",
                   "the text in the reason, and logs/<rank>.err"},
};

constexpr auto kBoth = [] {
  std::array<CatalogueEntry, kProgress.size() + kItself.size()> both{};
  for (std::size_t i = 0; i < kProgress.size(); ++i)
    both[i] = kProgress[i];
  for (std::size_t i = 0; i < kItself.size(); ++i)
    both[kProgress.size() + i] = kItself[i];
  return both;
}();

}  // namespace

std::span<const CatalogueEntry> catalogue_of_progress() { return kBoth; }

}  // namespace lockstep
