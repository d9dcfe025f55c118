"""Loops of timm, torchvision, torchdata, webdataset, ignite, torchmetrics and schedulefree: libraries_loops.py [KIND ...]"""

import io
import os
import sys
import tarfile
import tempfile

import data
import ignite.distributed as idist
import ignite.engine
import ignite.metrics
import schedulefree
import timm
import timm.data.distributed_sampler
import timm.optim
import timm.scheduler
import timm.utils
import torch
import torchdata.stateful_dataloader
import torchmetrics
import torchvision
import webdataset
from torch import distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

KINDS = {}


def kind(function):
    KINDS[function.__name__] = function
    return function


def images(count: int = 48) -> TensorDataset:
    drawn = torch.Generator().manual_seed(1)
    return TensorDataset(torch.randn(count, 3, 32, 32, generator=drawn), torch.randint(0, 3, (count,), generator=drawn))


def fit(model, optimizer, loader, sampler=None, epochs=3, after=lambda epoch: None) -> None:
    for epoch in range(epochs):
        if sampler is not None:
            sampler.set_epoch(epoch)
        for inputs, labels in loader:
            optimizer.zero_grad()
            functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
        after(epoch)


@kind
def timm_training() -> None:
    """As its train.py: augmentation that repeats, an average model, running statistics that are distributed."""
    timm.utils.random_seed(42, dist.get_rank())
    network = timm.create_model("test_resnet", pretrained=False, num_classes=3)
    optimizer = timm.optim.create_optimizer_v2(network, "adamw", lr=1e-3, weight_decay=0.05)
    average = timm.utils.ModelEmaV3(network, decay=0.9)
    model = DistributedDataParallel(network)
    sampler = timm.data.distributed_sampler.RepeatAugSampler(images(), num_repeats=3, selected_round=0)
    tested = timm.data.distributed_sampler.OrderedDistributedSampler(images(21))
    loader, test = DataLoader(images(), 4, sampler=sampler), DataLoader(images(21), 4, sampler=tested)
    schedule = timm.scheduler.CosineLRScheduler(optimizer, 3, warmup_t=1, warmup_lr_init=1e-4)
    steps = 0
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for inputs, labels in loader:
            optimizer.zero_grad()
            functional.cross_entropy(model(inputs), labels).backward()
            timm.utils.dispatch_clip_grad(model.parameters(), 1.0, mode="agc")
            optimizer.step()
            steps += 1
            average.update(network, step=steps)
            schedule.step_update(steps)
        timm.utils.distribute_bn(model, dist.get_world_size(), True)
        model.eval()
        with torch.no_grad():
            losses = [functional.cross_entropy(model(inputs), labels) for inputs, labels in test]
        timm.utils.reduce_tensor(torch.stack(losses).mean(), dist.get_world_size())
        timm.utils.distribute_bn(average, dist.get_world_size(), True)
        model.train()
        schedule.step(epoch + 1)


@kind
def torchvision_model() -> None:
    torch.manual_seed(0)
    model = DistributedDataParallel(torchvision.models.shufflenet_v2_x0_5(num_classes=3))
    sampler = DistributedSampler(images())
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.9, eps=0.03)
    average = torch.optim.swa_utils.AveragedModel(model.module, use_buffers=True)
    fit(model, optimizer, DataLoader(images(), 8, sampler=sampler), sampler,
        after=lambda epoch: average.update_parameters(model.module))


@kind
def stateful_loader() -> None:
    """torchdata's: a job that ends in an epoch, and goes on from the state of its loader."""
    torch.manual_seed(0)
    model = DistributedDataParallel(data.classifier())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = None
    for attempt in (1, 2):
        sampler = torchdata.stateful_dataloader.sampler.StatefulDistributedSampler(data.points(96))
        loader = torchdata.stateful_dataloader.StatefulDataLoader(data.points(96), 4, sampler=sampler, num_workers=1)
        if state is not None:
            loader.load_state_dict(state)
        for epoch in range(2):
            sampler.set_epoch(epoch)
            for step, (inputs, labels) in enumerate(loader):
                optimizer.zero_grad()
                functional.cross_entropy(model(inputs), labels).backward()
                optimizer.step()
                if attempt == 1 and step == 4:
                    state = loader.state_dict()
                    break
            if attempt == 1:
                break


@kind
def webdataset_shards() -> None:
    """Files that are dealt out to ranks and workers."""
    with tempfile.TemporaryDirectory() as folder:
        for file in range(8):
            with tarfile.open(os.path.join(folder, f"{file:06}.tar"), "w") as tar:
                for place in range(12):
                    inputs, label = data.points(96)[12 * file + place]
                    for name, content in (("x.pth", inputs), ("y.pth", label)):
                        buffer = io.BytesIO()
                        torch.save(content.clone(), buffer)
                        entry = tarfile.TarInfo(f"{file}_{place}.{name}")
                        entry.size = buffer.tell()
                        buffer.seek(0)
                        tar.addfile(entry, buffer)
        dist.barrier()
        shards = webdataset.WebDataset(os.path.join(folder, "{000000..000007}.tar"), nodesplitter=webdataset.split_by_node,
                                       shardshuffle=8, resampled=False).shuffle(20).decode().to_tuple("x.pth", "y.pth")
        loader = webdataset.WebLoader(shards.batched(8), batch_size=None, num_workers=2).with_epoch(6)
        torch.manual_seed(0)
        model = DistributedDataParallel(data.classifier())
        fit(model, torch.optim.AdamW(model.parameters(), lr=0.01), loader)
        dist.barrier()


@kind
def ignite_engine() -> None:
    """Its trainer and evaluator, and what makes a model and a loader distributed."""
    torch.manual_seed(0)
    model = idist.auto_model(data.classifier())
    optimizer = idist.auto_optim(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    loader = idist.auto_dataloader(data.points(96), batch_size=8, shuffle=True)
    trainer = ignite.engine.create_supervised_trainer(model, optimizer, functional.cross_entropy,
                                                      gradient_accumulation_steps=2)
    evaluator = ignite.engine.create_supervised_evaluator(model, {"right": ignite.metrics.Accuracy()})

    @trainer.on(ignite.engine.Events.EPOCH_STARTED)
    def tell_epoch(engine: ignite.engine.Engine) -> None:
        loader.sampler.set_epoch(engine.state.epoch)

    @trainer.on(ignite.engine.Events.EPOCH_COMPLETED)
    def evaluate(engine: ignite.engine.Engine) -> None:
        evaluator.run(idist.auto_dataloader(data.points(40), batch_size=8))
    trainer.run(loader, max_epochs=4)


@kind
def schedule_free() -> None:
    """Weights that the optimizer swaps for evaluation, and metrics that are reduced."""
    torch.manual_seed(0)
    model = DistributedDataParallel(data.classifier())
    optimizer = schedulefree.AdamWScheduleFree(model.parameters(), lr=0.01, warmup_steps=5)
    sampler = DistributedSampler(data.points(96))
    right = torchmetrics.classification.MulticlassAccuracy(num_classes=3)

    def evaluate(epoch: int) -> None:
        model.eval()
        optimizer.eval()
        with torch.no_grad():
            for inputs, labels in DataLoader(data.points(40), 8, sampler=DistributedSampler(data.points(40), shuffle=False)):
                right.update(model(inputs), labels)
        right.compute()
        right.reset()
        model.train()
        optimizer.train()
    optimizer.train()
    fit(model, optimizer, DataLoader(data.points(96), 8, sampler=sampler), sampler, after=evaluate)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    for name in sys.argv[1:] or KINDS:
        KINDS[name]()
        dist.barrier()
        if dist.get_rank() == 0:
            print(name, "done", flush=True)
    dist.destroy_process_group()
