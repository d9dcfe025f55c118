"""DeepSpeed on CPU: ZeRO of the stage that is given, over Gloo and torch's own optimizer, so that nothing is compiled."""

import sys

import data
import deepspeed
import torch


def main(stage: int) -> None:
    deepspeed.init_distributed(dist_backend="gloo")
    module = data.classifier()
    config = {"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": stage},
              "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}
    engine, _, loader, _ = deepspeed.initialize(model=module, optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
                                                training_data=data.points(), config=config)
    for inputs, labels in loader:
        loss = torch.nn.functional.cross_entropy(engine(inputs), labels)
        engine.backward(loss)
        engine.step()
    torch.distributed.all_reduce(loss.detach())
    if torch.distributed.get_rank() == 0:
        print(f"stage {stage}: {engine.global_steps} steps, loss {loss.item():.4f}")
    engine.destroy()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[-1]))
