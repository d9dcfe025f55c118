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
    CatalogueEntry{"LS411", "shards-overlap", "shards overlap",
                   "The same sample is given to more than one rank in an epoch.",
                   "no distributed sampler\na permutation seeded by rank",
                   "the samples and ranks named"},
    CatalogueEntry{
        "LS412", "samples-missed", "samples are missed",
        "Some samples are given to no rank in an epoch.",
        "a permutation seeded by rank\nan off-by-one at a shard's end\nundeclared drop_last",
        "the samples named"},
    CatalogueEntry{"LS413", "unequal-lengths", "shards have unequal lengths",
                   "Ranks get different numbers of samples or batches although the sampler "
                   "promises equal ones.",
                   "a length that the world size does not divide\nbucketing before sharding",
                   "the lengths per rank"},
    CatalogueEntry{"LS414", "not-reshuffled", "an epoch is not reshuffled",
                   "Two epochs give the same order on every rank.", "set_epoch is never called",
                   "the training loop's start"},
    CatalogueEntry{"LS415", "padding-counted", "padding is counted as data",
                   "Samples repeated to make shards equal enter a metric as if they were data.",
                   "evaluation with a sampler that pads", "the samples counted twice"},
    CatalogueEntry{"LS416", "wrong-length", "a declared length is wrong",
                   "__len__ promises another number of batches than the iteration delivers.",
                   "a batch sampler whose length ignores drop_last or bucketing",
                   "the promised and the delivered number"},
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
