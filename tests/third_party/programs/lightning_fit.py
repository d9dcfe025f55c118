"""Lightning's Trainer on two ranks, fit and then test: lightning_fit.py ddp_spawn | ddp_fork | ddp (subprocesses)."""

import sys
import warnings

import data
import lightning
import torch

warnings.filterwarnings("ignore")


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = data.classifier()

    def step_of(self, batch: list, name: str) -> torch.Tensor:
        loss = torch.nn.functional.cross_entropy(self.model(batch[0]), batch[1])
        self.log(name, loss, sync_dist=True, on_epoch=True)
        return loss

    def training_step(self, batch: list) -> torch.Tensor:
        return self.step_of(batch, "loss")

    def validation_step(self, batch: list) -> None:
        self.step_of(batch, "validation")

    def test_step(self, batch: list) -> None:
        self.step_of(batch, "test")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


if __name__ == "__main__":
    lightning.seed_everything(3)
    loader = torch.utils.data.DataLoader(data.points(), batch_size=8)
    trainer = lightning.Trainer(accelerator="cpu", devices=2, strategy=sys.argv[1], max_epochs=2, logger=False,
                                enable_progress_bar=False, enable_checkpointing=False, enable_model_summary=False)
    model = Classifier()
    trainer.fit(model, loader, loader)
    result = trainer.test(model, loader, verbose=False)
    if trainer.global_rank == 0:
        print("test", [round(value, 4) for value in result[0].values()])
