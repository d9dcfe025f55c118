"""Subjects by the name of a library: what it makes of a program's model and loader, in the shapes that the adapters know.

Kind, module, name; a module of "" is this one.
"""

import os

import torch.distributed as dist
from torch.utils.data import DataLoader

LIBRARIES = {
    "torch": (
        ("ddp", "torch.nn.parallel", "DistributedDataParallel"),
        ("sampler", "torch.utils.data", "DistributedSampler"),
        ("dp", "torch.nn", "DataParallel"),
        ("sync_bn", "torch.nn", "SyncBatchNorm"),
    ),
    "accelerate": (
        ("ddp", "", "wrap_prepared"),
        ("sampler", "", "PreparedLoader"),
        ("sampler", "", "SplitLoader"),
        ("sampler", "", "UnevenLoader"),
        ("sampler", "", "DispatchedLoader"),
    ),
    "lightning": (
        ("sampler", "lightning.fabric.utilities.distributed", "DistributedSamplerWrapper"),  # What a Trainer injects.
    ),
}


def as_launched():
    """The environment that accelerate's launcher makes. What a loader has left without a group knows of no other process."""
    from accelerate.state import AcceleratorState

    rank, world = str(dist.get_rank()), str(dist.get_world_size())
    os.environ.update(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=world, LOCAL_WORLD_SIZE=world)
    AcceleratorState._reset_state(reset_partial_state=True)


def wrap_prepared(module, broadcast_buffers=True, find_unused_parameters=False, static_graph=False, gradient_as_bucket_view=False):
    """accelerate: Accelerator.prepare() of a model, with its own handler for DDP's options."""
    from accelerate import Accelerator, DistributedDataParallelKwargs

    as_launched()
    options = DistributedDataParallelKwargs(
        broadcast_buffers=broadcast_buffers, find_unused_parameters=find_unused_parameters, static_graph=static_graph,
        gradient_as_bucket_view=gradient_as_bucket_view)
    return Accelerator(cpu=True, kwargs_handlers=[options]).prepare(module)


wrap_prepared.lockstep = {"offers": ["initial"]}


class PreparedLoader:
    """accelerate: Accelerator.prepare() of a loader, for one process; an item is its index."""

    SPLIT, EVEN, DISPATCHED = False, True, False

    def __init__(self, dataset, batch_size, num_replicas, rank, shuffle=True, seed=0, drop_last=False):
        from accelerate.data_loader import prepare_data_loader

        size = batch_size * num_replicas if self.SPLIT else batch_size
        loader = DataLoader(range(len(dataset)), batch_size=size, shuffle=shuffle and len(dataset) > 0, drop_last=drop_last)
        self.loader = prepare_data_loader(
            loader, num_processes=num_replicas, process_index=rank, split_batches=self.SPLIT, even_batches=self.EVEN,
            dispatch_batches=self.DISPATCHED, put_on_device=self.DISPATCHED, use_seedable_sampler=True, data_seed=seed)

    def set_epoch(self, epoch):
        self.loader.set_epoch(epoch)

    def __iter__(self):
        return iter(self.loader)

    def __len__(self):
        return len(self.loader)


class SplitLoader(PreparedLoader):
    """accelerate: split_batches=True: a batch of the loader is what all processes have together."""

    SPLIT = True


class UnevenLoader(PreparedLoader):
    """accelerate: even_batches=False: nothing is read twice, and processes may have different numbers of batches."""

    EVEN = False


class DispatchedLoader(PreparedLoader):
    """accelerate: dispatch_batches=True: the first process reads, and sends each the slice of a batch that is its own."""

    DISPATCHED = True

    def __init__(self, dataset, batch_size, num_replicas, rank, shuffle=True, seed=0, drop_last=False):
        from accelerate import PartialState

        as_launched()
        PartialState(cpu=True)
        super().__init__(dataset, batch_size, num_replicas, rank, shuffle, seed, drop_last)
