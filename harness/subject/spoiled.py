"""Mutants of a subject: what the host changes in what the subject has done, to prove that the mistake is found there.

The option `spoiled` of a case names one of fixtures/mutants/table_subjects.h; `rank` and `step` say where it strikes."""

import torch
import torch.distributed as dist
from torch import nn

from .lines import Unsupported

KINDS = ("sum_for_mean", "local_gradient", "lost_gradient", "parameter_drifts", "biased_variance", "own_statistics",
         "other_share", "index_lost", "index_twice", "epoch_ignored")


class Spoiler:
    def __init__(self, options, rank, world):
        self.kind, self.world, self.rank = options.get("spoiled", ""), world, rank
        self.drawn, self.step = int(options.get("rank", rank)), int(options.get("step", 0))
        if self.kind and self.kind not in KINDS:
            raise Unsupported(f"this host has no mutant {self.kind}")

    def strikes(self, kind, step=None):
        return self.kind == kind and self.rank == self.drawn and step in (None, self.step)

    @torch.no_grad()
    def gradients(self, named, step):
        """After the reduction of a step."""
        given = [parameter.grad for _, parameter in named if parameter.grad is not None]
        if self.kind == "sum_for_mean":
            for gradient in given:
                gradient.mul_(self.world)
        if given and (self.strikes("local_gradient", step) or self.kind == "lost_gradient"):
            given[-1].add_(1.0 + self.rank)

    @torch.no_grad()
    def parameters(self, named, step):
        """After the optimizer."""
        if self.strikes("parameter_drifts", step):
            *_, (_, parameter) = named
            parameter.add_(1.0)

    def layers(self, layers):
        """Before the first forward: of a class that normalises, the modules of it."""
        for layer in layers:
            if self.kind == "own_statistics":
                layer.register_forward_hook(by_own_rows)
            if self.kind == "biased_variance":
                layer.register_forward_hook(with_less_variance)

    def epoch(self, number):
        return 0 if self.kind == "epoch_ignored" else number

    def share(self):
        """Whose samples this rank reads, of a sampler that is told its rank."""
        return (self.rank + 1) % self.world if self.strikes("other_share") else self.rank

    def batches(self, batches):
        """Of one epoch. Batches that nobody else may see changed are copied."""
        if self.kind == "other_share" and dist.is_initialized():
            everyone = [None] * self.world
            dist.all_gather_object(everyone, batches)
            return everyone[self.share()]
        if batches and self.strikes("index_lost"):
            return [*batches[:-1], batches[-1][:-1]]
        if batches and self.strikes("index_twice"):
            return [*batches[:-1], [*batches[-1][:-1], batches[0][0]]]
        return batches


def by_own_rows(layer, inputs, output):
    if not layer.training:
        return output
    alone = nn.functional.batch_norm(inputs[0], None, None, None, None, True, 0.0, getattr(layer, "eps", 1e-5))
    return alone + 0 * output


@torch.no_grad()
def with_less_variance(layer, _inputs, _output):
    for name, buffer in layer.named_buffers():
        if layer.training and "var" in name:
            buffer.mul_(0.9)
