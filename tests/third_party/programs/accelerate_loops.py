"""Loops of accelerate's documentation on two ranks: accelerate_loops.py [KIND ...]"""

import shutil
import sys
import tempfile

import accelerate
import accelerate.local_sgd
import accelerate.test_utils.training
import accelerate.utils
import data
import torch
from torch.nn import functional
from torch.utils.data import DataLoader

KINDS = {}


def kind(function):
    KINDS[function.__name__] = function
    return function


def prepared(accelerator: accelerate.Accelerator, shuffle: bool = True) -> tuple:
    accelerate.utils.set_seed(5)
    model = data.classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 24)
    loader = DataLoader(data.points(), batch_size=4, shuffle=shuffle)
    return accelerator.prepare(model, optimizer, loader, schedule)


def evaluate(accelerator: accelerate.Accelerator, model: torch.nn.Module) -> float:
    loader = accelerator.prepare(DataLoader(data.points(45), batch_size=4))
    model.eval()
    right = []
    for inputs, labels in loader:
        with torch.no_grad():
            guesses = model(inputs).argmax(dim=1)
        right.append(accelerator.gather_for_metrics((guesses == labels).float()))
    model.train()
    return torch.cat(right).mean().item()


def fit(accelerator: accelerate.Accelerator, shuffle: bool = True, epochs: int = 4, after=lambda: None) -> None:
    model, optimizer, loader, schedule = prepared(accelerator, shuffle)
    for epoch in range(epochs):
        if hasattr(loader, "set_epoch"):
            loader.set_epoch(epoch)
        for inputs, labels in loader:
            with accelerator.accumulate(model):
                loss = functional.cross_entropy(model(inputs), labels)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
                after()
    accelerator.print("right", round(evaluate(accelerator, model), 2))


@kind
def accumulation() -> None:
    fit(accelerate.Accelerator(cpu=True, gradient_accumulation_steps=4))


@kind
def split_batches() -> None:
    fit(accelerate.Accelerator(cpu=True, dataloader_config=accelerate.DataLoaderConfiguration(split_batches=True)))


@kind
def dispatch_batches() -> None:
    fit(accelerate.Accelerator(cpu=True, dataloader_config=accelerate.DataLoaderConfiguration(dispatch_batches=True)))


@kind
def seedable_sampler() -> None:
    config = accelerate.DataLoaderConfiguration(use_seedable_sampler=True)
    fit(accelerate.Accelerator(cpu=True, dataloader_config=config), epochs=3)


@kind
def sequential() -> None:
    fit(accelerate.Accelerator(cpu=True), shuffle=False)


@kind
def compressed() -> None:
    hook = accelerate.DistributedDataParallelKwargs(comm_hook=accelerate.utils.DDPCommunicationHookType.BF16)
    fit(accelerate.Accelerator(cpu=True, kwargs_handlers=[hook], mixed_precision="bf16"))


@kind
def local_sgd() -> None:
    accelerator = accelerate.Accelerator(cpu=True)
    model, optimizer, loader, schedule = prepared(accelerator)
    with accelerate.local_sgd.LocalSGD(accelerator, model, local_sgd_steps=4, enabled=True) as local:
        for _ in range(5):
            for inputs, labels in loader:
                accelerator.backward(functional.cross_entropy(model(inputs), labels))
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
                local.step()
    accelerator.print("right", round(evaluate(accelerator, model), 2))


@kind
def checkpoints() -> None:
    """A job that is stopped in its second epoch, and one that goes on from what it saved there."""
    accelerator = accelerate.Accelerator(cpu=True)
    folder = accelerate.utils.broadcast_object_list([tempfile.mkdtemp()])[0]
    model, optimizer, loader, schedule = prepared(accelerator)
    for begin, skip, end in ((0, 0, 2), (1, 3, 4)):
        if begin:
            accelerator.load_state(folder)
        for epoch in range(begin, end):
            loader.set_epoch(epoch)
            batches = accelerator.skip_first_batches(loader, skip) if epoch == begin and skip else loader
            for step, (inputs, labels) in enumerate(batches):
                if epoch == 1 and not begin and step == 3:
                    accelerator.save_state(folder)
                    accelerator.wait_for_everyone()
                    break
                accelerator.backward(functional.cross_entropy(model(inputs), labels))
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
    accelerator.print("right", round(evaluate(accelerator, model), 2))
    if accelerator.is_main_process:
        shutil.rmtree(folder)


@kind
def early_stop() -> None:
    """The rank that sees its loss fall low enough tells all."""
    accelerator = accelerate.Accelerator(cpu=True)
    model, optimizer, loader, schedule = prepared(accelerator)
    for _ in range(20):
        for inputs, labels in loader:
            loss = functional.cross_entropy(model(inputs), labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            if loss.item() < 0.5:
                accelerator.set_trigger()
            if accelerator.check_trigger():
                break
        else:
            continue
        break
    accelerator.print("right", round(evaluate(accelerator, model), 2))


@kind
def two_models() -> None:
    """A generator and a discriminator, prepared together, with a loader that is left in its middle."""
    accelerator = accelerate.Accelerator(cpu=True)
    accelerate.utils.set_seed(5)
    generator, critic = torch.nn.Linear(4, data.FEATURES), torch.nn.Linear(data.FEATURES, 1)
    steps = [torch.optim.Adam(one.parameters(), lr=0.01) for one in (generator, critic)]
    loader = DataLoader(data.points(), batch_size=4, shuffle=True)
    generator, critic, *steps, loader = accelerator.prepare(generator, critic, *steps, loader)
    for _ in range(4):
        for step, (real, _) in enumerate(loader):
            noise = torch.randn(len(real), 4)
            steps[1].zero_grad()
            fake = generator(noise)
            told = functional.softplus(critic(fake.detach())).mean() + functional.softplus(-critic(real)).mean()
            accelerator.backward(told)
            steps[1].step()
            steps[0].zero_grad()
            accelerator.backward(functional.softplus(-critic(fake)).mean())
            steps[0].step()
            if step == 4:
                break


@kind
def regression() -> None:
    """accelerate's own test model and data."""
    accelerator = accelerate.Accelerator(cpu=True)
    accelerate.utils.set_seed(42)
    model = accelerate.test_utils.training.RegressionModel(a=1, b=2)
    loader = DataLoader(accelerate.test_utils.training.RegressionDataset(length=80), batch_size=8, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for _ in range(4):
        for batch in loader:
            accelerator.backward(functional.mse_loss(model(batch["x"]), batch["y"]))
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    for name in sys.argv[1:] or KINDS:
        KINDS[name]()
        accelerate.state.AcceleratorState._reset_state()  # Each loop has settings of its own.
        accelerate.state.GradientState._reset_state()
        if torch.distributed.get_rank() == 0:
            print(name, "done", flush=True)
    torch.distributed.destroy_process_group()
