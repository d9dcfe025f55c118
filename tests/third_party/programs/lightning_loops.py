"""Lightning's loops on two ranks: lightning_loops.py [KIND ...]"""

import os
import sys
import warnings

import data
import lightning
import lightning.pytorch.demos.boring_classes as boring
import torch
from lightning.pytorch import callbacks
from torch.nn import functional
from torch.utils.data import DataLoader, DistributedSampler

warnings.filterwarnings("ignore")
QUIET = {"accelerator": "cpu", "devices": 2, "strategy": "ddp", "logger": False, "enable_progress_bar": False,
         "enable_checkpointing": False, "enable_model_summary": False}
KINDS = {}


def kind(function):
    KINDS[function.__name__] = function
    return function


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.lr = 0.01
        self.model = data.classifier()
        self.norm = torch.nn.BatchNorm1d(data.FEATURES)

    def training_step(self, batch: list) -> torch.Tensor:
        return functional.cross_entropy(self.model(self.norm(batch[0])), batch[1])

    def validation_step(self, batch: list) -> None:
        self.log("validation", functional.cross_entropy(self.model(self.norm(batch[0])), batch[1]), sync_dist=True)

    def configure_optimizers(self) -> dict:
        optimizer = torch.optim.Adam(filter(lambda p: p.requires_grad, self.parameters()), lr=self.lr)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 2)}


class Adversarial(lightning.LightningModule):
    """The tutorial's: two optimizers, manual optimization."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.generator, self.critic = torch.nn.Linear(4, data.FEATURES), torch.nn.Linear(data.FEATURES, 1)

    def training_step(self, batch: list) -> None:
        real, (step_generator, step_critic) = batch[0], self.optimizers()
        noise = torch.randn(len(real), 4)
        self.toggle_optimizer(step_generator)
        self.manual_backward(functional.softplus(-self.critic(self.generator(noise))).mean())
        step_generator.step()
        step_generator.zero_grad()
        self.untoggle_optimizer(step_generator)
        self.toggle_optimizer(step_critic)
        fake = self.generator(noise).detach()
        self.manual_backward(functional.softplus(-self.critic(real)).mean() + functional.softplus(self.critic(fake)).mean())
        step_critic.step()
        step_critic.zero_grad()
        self.untoggle_optimizer(step_critic)

    def configure_optimizers(self) -> list:
        return [torch.optim.Adam(one.parameters(), lr=0.01) for one in (self.generator, self.critic)]


def loader(count: int = 48, **more: object) -> DataLoader:
    return DataLoader(data.points(count), batch_size=4, **more)


def fit(model: lightning.LightningModule, validation: bool = True, trained: DataLoader | None = None, **more) -> None:
    lightning.seed_everything(3, verbose=False)
    trainer = lightning.Trainer(**{**QUIET, "max_epochs": 4, **more})
    trainer.fit(model, trained or loader(shuffle=True), loader() if validation else None)
    if trainer.global_rank == 0:
        print("steps", trainer.global_step)


@kind
def accumulation() -> None:
    fit(Classifier(), accumulate_grad_batches=3, gradient_clip_val=0.5)


@kind
def scheduled_accumulation() -> None:
    fit(Classifier(), callbacks=[callbacks.GradientAccumulationScheduler({0: 1, 2: 2})])


@kind
def averaged_weights() -> None:
    fit(Classifier(), callbacks=[callbacks.StochasticWeightAveraging(swa_lrs=0.01, swa_epoch_start=2)])


@kind
def moving_average() -> None:
    fit(Classifier(), callbacks=[callbacks.EMAWeightAveraging(decay=0.9)])


@kind
def adversarial() -> None:
    fit(Adversarial(), False, strategy="ddp_find_unused_parameters_true")


@kind
def own_sampler() -> None:
    trained = loader(sampler=DistributedSampler(data.points(), num_replicas=2, rank=int(os.environ.get(
        "LOCAL_RANK", 0))))
    fit(Classifier(), False, trained, use_distributed_sampler=False)


@kind
def rate_finder() -> None:
    fit(Classifier(), callbacks=[callbacks.LearningRateFinder(num_training_steps=40)], max_epochs=2)


@kind
def bfloat16() -> None:
    fit(Classifier(), precision="bf16-mixed", sync_batchnorm=False, limit_train_batches=5)


@kind
def thawed_later() -> None:
    class Thaw(callbacks.BaseFinetuning):
        def freeze_before_training(self, module: Classifier) -> None:
            self.freeze(module.model[0])

        def finetune_function(self, module: Classifier, epoch: int, optimizer: torch.optim.Optimizer) -> None:
            if epoch == 2:
                self.unfreeze_and_add_param_group(module.model[0], optimizer)
    fit(Classifier(), strategy="ddp_find_unused_parameters_true", callbacks=[Thaw()])


@kind
def demos() -> None:
    """Lightning's own boring models, as its tests train them."""
    for model in (boring.BoringModel(), boring.ManualOptimBoringModel()):
        trainer = lightning.Trainer(**QUIET, max_epochs=2, limit_train_batches=20, limit_val_batches=2)
        trainer.fit(model)


@kind
def fabric() -> None:
    work = lightning.Fabric(accelerator="cpu", devices=2, strategy="ddp")
    work.launch()
    work.seed_everything(3)
    model = data.classifier()
    model, optimizer = work.setup(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    batches = work.setup_dataloaders(loader(shuffle=True))
    for epoch in range(4):
        for step, (inputs, labels) in enumerate(batches):
            accumulating = step % 2 == 0
            with work.no_backward_sync(model, enabled=accumulating):
                work.backward(functional.cross_entropy(model(inputs), labels))
            if not accumulating:
                optimizer.step()
                optimizer.zero_grad()
    work.print("right", work.all_reduce((model(inputs).argmax(dim=1) == labels).float().mean()).item() >= 0)


if __name__ == "__main__":
    for name in sys.argv[1:] or KINDS:
        KINDS[name]()
        if torch.distributed.get_rank() == 0:
            print(name, "done", flush=True)
