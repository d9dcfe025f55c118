#include <array>

#include "harness/verdict/catalogue_parts.h"

namespace lockstep {
namespace {

constexpr std::array kData{
    CatalogueEntry{
        "LS401", "parameter-differs", "a parameter differs between replicas",
        "After a step the same parameter has different values on ranks that hold the same model. "
        "Compared exactly: "
        "an all-reduce computes each element once and copies it.",
        "a gradient that was not reduced on one rank\nanother learning rate or optimizer state\n"
        "a parameter changed outside the optimizer",
        "the first step and tensor named\nwhether its gradient was equal in that step"},
    CatalogueEntry{
        "LS402", "buffer-differs", "a buffer is not what the contract says at entry of forward",
        "With buffers of rank 0, every rank must enter forward with exactly the buffers that rank "
        "0 had; when "
        "synchronised, all must be equal. Differences after a forward are legal and not looked at.",
        "no broadcast before forward, or one that a flag switched off\nbroadcast from another "
        "rank\n"
        "a buffer registered after wrapping",
        "the buffer, step and ranks named\nwho was the source of the broadcast"},
    CatalogueEntry{"LS403", "gradient-not-synchronised",
                   "a gradient differs between ranks although it was reduced",
                   "The step reduced this gradient and ranks still hold different values of it.",
                   "a result that was not written back on one rank\na stale view of a bucket\n"
                   "a gradient used before the reduction ended",
                   "the parameter and ranks named\nthe wait before the optimizer step"},
    CatalogueEntry{"LS404", "optimizer-state-differs", "optimizer state differs between replicas",
                   "Parameters may still be equal; they will not be after the next step.",
                   "state loaded on one rank only\nanother learning rate or schedule per rank",
                   "the entry and ranks named"},
    CatalogueEntry{"LS405", "random-state",
                   "random state is equal where it must differ, or differs where it must be equal",
                   "Ranks draw the same noise for different data, or different numbers for a "
                   "decision they must take together.",
                   "one seed for all ranks, or a rank-dependent seed for a shared decision",
                   "where each rank seeds"},
    CatalogueEntry{
        "LS406", "initial-value", "replicas start with different values or in different order",
        "Right after wrapping, parameters (or buffers, where rank 0's are promised) are not equal "
        "to those of rank "
        "0, by name.",
        "no broadcast at construction, or one from another rank\na checkpoint loaded on one rank "
        "after wrapping\n"
        "parameters registered in another order",
        "the tensors named, and what changes them between construction and the first step"},
    CatalogueEntry{
        "LS407", "outside-buckets", "a parameter is outside every bucket",
        "The gradient of this parameter stays local on every rank, and the elements reduced in the "
        "step are short "
        "of exactly this parameter.",
        "a parameter added or unfrozen after wrapping\na parameter excluded by an ignore list\n"
        "a module called around its wrapper",
        "the parameter named: when was it registered, and did it require a gradient then"},
    CatalogueEntry{
        "LS411", "shards-overlap", "shards overlap",
        "The same sample is given to more than one rank in an epoch, more often than the sampler "
        "declares.",
        "no distributed sampler: every rank sees all data\na permutation seeded by rank or by "
        "time\n"
        "a sampler that inherits from a distributed one and does not divide by rank\n"
        "two ranks that take one rank's share",
        "the samples and ranks named, and how many there are\n"
        "where the order is drawn, and from which seed"},
    CatalogueEntry{
        "LS412", "samples-missed", "samples are missed",
        "Some samples are given to no rank in an epoch, or to none in any epoch, and the sampler "
        "does not declare that it leaves them out.",
        "a permutation seeded by rank\nan off-by-one at a shard's end, or at a bucket's boundary\n"
        "a tail that is cut off before the order is shuffled\nundeclared drop_last",
        "the samples named, and what they have in common"},
    CatalogueEntry{"LS413", "unequal-lengths", "shards have unequal lengths",
                   "Ranks get different numbers of samples or batches although the sampler "
                   "promises equal ones. In training the ranks with more will wait for the others.",
                   "a length that the world size does not divide\nbucketing before sharding",
                   "the lengths per rank"},
    CatalogueEntry{
        "LS414", "not-reshuffled", "an epoch is not reshuffled",
        "An epoch gives ranks the order of an earlier one, although the sampler declares "
        "to shuffle, and chance does not do that.",
        "set_epoch is never called\na sampler that ignores it", "the training loop's start"},
    CatalogueEntry{"LS415", "padding-counted", "padding is counted as data",
                   "Samples are repeated to make shards equal, and the sampler declares that it "
                   "repeats none: in a metric they count as if they were data.",
                   "evaluation with a sampler that pads", "the samples counted twice"},
    CatalogueEntry{"LS416", "wrong-length", "a declared length is wrong",
                   "The sampler's length promises another number of batches than it gives.",
                   "a batch sampler whose length ignores drop_last or bucketing\n"
                   "a length inherited from a class that gives something else",
                   "the promised and the delivered number"},
    CatalogueEntry{"LS417", "list-changed", "a sampler changes its caller's list of boundaries",
                   "After the sampler was made, the list of bucket boundaries that it was given is "
                   "another. The next sampler made from that list has other buckets.",
                   "empty buckets removed from the list itself, not from a copy",
                   "the list before and after\nwhether other samplers are made from the same list"},
    CatalogueEntry{"LS418", "step-mixes-buckets",
                   "ranks have batches of different buckets at a step",
                   "The sampler declares that at each step all ranks have batches of one bucket. "
                   "They do not, so that ranks with short items wait for those with long ones.",
                   "the order of batches shuffled from a seed that differs per rank\n"
                   "buckets that give ranks different numbers of batches",
                   "the step and the lengths named\nwhat the order of batches is drawn from"},
    CatalogueEntry{"LS419", "batch-mixes-buckets", "a batch has items of more than one bucket",
                   "The sampler declares that the items of a batch are of one bucket. A batch has "
                   "items of lengths that are in different ones.",
                   "batches cut from all buckets in a row, across the end of one\n"
                   "a remainder filled up from another bucket",
                   "the batch and the lengths named"},
    CatalogueEntry{"LS420", "empty-epoch", "a sampler yields nothing",
                   "No rank is given any sample in an epoch of a dataset that has samples to give. "
                   "A training loop over it does nothing, and says nothing.",
                   "an iterator that was used up, for instance to count its length\n"
                   "every item outside the boundaries of the buckets\nfewer samples than a batch",
                   "the promised length, and whether the first epoch is empty, too"},
    CatalogueEntry{"LS421", "index-out-of-range", "a sampler gives an index outside the dataset",
                   "An index is below zero or not below the dataset's length.",
                   "padding of a dataset smaller than the world size that does not wrap around\n"
                   "a length taken before the dataset was filtered",
                   "the indices and ranks named, and the dataset's length"},
    CatalogueEntry{"LS422", "sample-repeated", "a sample is given twice to one rank",
                   "In one epoch the same rank is given a sample more than once, and the sampler "
                   "does not declare it.",
                   "an index repeated at the seam of two parts of a shard\n"
                   "with another sample missed: one written over the other",
                   "the samples and ranks named"},
    CatalogueEntry{
        "LS501", "gradient-wrong", "a gradient differs from the reference",
        "The gradient is not the one that a single process computes for the declared contract on "
        "the same data. "
        "Ranks may well agree with each other on the wrong value.",
        "gradients written back to the wrong parameters\na dropped rank, another weighting\n"
        "a buffer overwritten between two forwards\nreduction before the gradient was ready",
        "which tensors are wrong, and by how much\nwhether the error is one factor (then it is "
        "LS506)"},
    CatalogueEntry{
        "LS502", "batch-statistics", "batch statistics differ from the reference",
        "Mean or variance used to normalise is not that of the concatenated batch.",
        "an unweighted mean over ranks\nE[x^2]-E[x]^2 with a large mean\nlocal statistics",
        "the feature named, and the batch sizes per rank"},
    CatalogueEntry{"LS503", "loss-weighting", "the loss is weighted otherwise than declared",
                   "Per-rank losses are combined with other weights than the contract says.",
                   "a mean of means over unequal batches\naccumulation steps counted twice",
                   "the weights in the evidence"},
    CatalogueEntry{"LS504", "no-second-derivative", "there is no second derivative",
                   "A gradient of a gradient is missing or zero where the reference has one: the "
                   "penalty does not train.",
                   "a custom backward that is not differentiable\ncreate_graph left out",
                   "the node named"},
    CatalogueEntry{"LS505", "running-statistics", "running statistics differ from the reference",
                   "Running mean or variance after the step is not momentum times the statistics "
                   "of the whole batch.",
                   "biased for unbiased variance\ncount times world size with unequal "
                   "batches\nswapped momentum",
                   "the buffer named and the ratio to the reference"},
    CatalogueEntry{
        "LS506", "uniform-factor", "all gradients are off by one factor",
        "Every gradient is the reference times the same number.",
        "sum for mean (the factor is the world size)\ndivided by the world size minus one\n"
        "divided twice, or reduced on every micro-batch",
        "the factor in the headline, and the place that divides"},
};

}  // namespace

std::span<const CatalogueEntry> catalogue_of_data() { return kData; }

}  // namespace lockstep
