"""Ray Train's TorchTrainer: two workers on this machine that reduce gradients over Gloo."""

import os
import tempfile

# No reports of usage leave this machine.
os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_TRAIN_ENABLE_STATE_TRACKING="0")

import data
import ray
import ray.train
import ray.train.torch
import torch


def train(config: dict) -> None:
    model = ray.train.torch.prepare_model(data.classifier())
    loader = ray.train.torch.prepare_data_loader(torch.utils.data.DataLoader(data.points(), batch_size=8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(config["epochs"]):
        loader.sampler.set_epoch(epoch)
        for inputs, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        mean = loss.detach().clone()
        torch.distributed.all_reduce(mean, torch.distributed.ReduceOp.AVG)
        with tempfile.TemporaryDirectory() as folder:  # The result has the metrics of what was saved, and no others.
            torch.save(model.state_dict(), os.path.join(folder, "model.pt"))
            saved = ray.train.Checkpoint.from_directory(folder) if torch.distributed.get_rank() == 0 else None
            ray.train.report({"loss": mean.item()}, checkpoint=saved)


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False,
             runtime_env={"env_vars": {"PYTHONPATH": here}})
    with tempfile.TemporaryDirectory() as storage:
        trainer = ray.train.torch.TorchTrainer(
            train, train_loop_config={"epochs": 2}, torch_config=ray.train.torch.TorchConfig(backend="gloo"),
            scaling_config=ray.train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1}),
            run_config=ray.train.RunConfig(storage_path=storage, name="small"))
        print("loss", round(trainer.fit().metrics["loss"], 4))
    ray.shutdown()
