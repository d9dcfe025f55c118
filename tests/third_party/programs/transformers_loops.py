"""Hugging Face's Trainer under torchrun, as people set it up: transformers_loops.py [KIND ...]"""

import sys
import tempfile
import warnings

import accelerate
import torch
import transformers
from transformers_trainer import Sentences

torch.set_num_threads(1)
warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
KINDS = {
    "accumulation": {"gradient_accumulation_steps": 3, "max_grad_norm": 0.5, "warmup_steps": 4,
                     "lr_scheduler_type": "cosine"},
    "bf16": {"bf16": True, "eval_strategy": "steps", "eval_steps": 4},
    "split": {"accelerator_config": {"split_batches": True}},
    "dispatched": {"accelerator_config": {"dispatch_batches": True}, "max_steps": 30},
    "streamed": {"max_steps": 20},
    "best": {"eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": True, "save_total_limit": 1},
    "resumed": {"save_strategy": "steps", "save_steps": 6},
    "adafactor": {"optim": "adafactor", "label_smoothing_factor": 0.1, "dataloader_drop_last": True},
    "checkpointed": {"gradient_checkpointing": True, "ddp_find_unused_parameters": False, "weight_decay": 0.01},
    "workers": {"dataloader_num_workers": 2, "dataloader_persistent_workers": True, "seed": 7, "data_seed": 9},
    "language": {},
}


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return (Sentences()[index] for index in range(64))


def classifier() -> torch.nn.Module:
    return transformers.BertForSequenceClassification(transformers.BertConfig(
        vocab_size=64, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=16))


def language_model() -> torch.nn.Module:
    config = transformers.GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=2)
    return transformers.GPT2LMHeadModel(config)


def language(index: int) -> dict:
    words = Sentences()[index]["input_ids"]
    return {"input_ids": words, "labels": words}


def main(kind: str) -> None:
    transformers.set_seed(3)
    with tempfile.TemporaryDirectory() as folder:
        given = {"output_dir": folder, "use_cpu": True, "per_device_train_batch_size": 4, "num_train_epochs": 4,
                 "save_strategy": "no", "report_to": "none", "disable_tqdm": True, "log_level": "error",
                 "logging_strategy": "no", **KINDS[kind]}
        shared = [folder]
        arguments = transformers.TrainingArguments(**given)
        torch.distributed.broadcast_object_list(shared, 0)
        arguments.output_dir = shared[0]
        model = language_model() if kind == "language" else classifier()
        texts = [language(index) for index in range(40)] if kind == "language" else Sentences()
        trained = Stream() if kind in ("streamed", "dispatched") else texts
        trainer = transformers.Trainer(model, arguments, train_dataset=trained, eval_dataset=texts)
        trainer.train()
        if kind == "resumed":
            trainer.args.num_train_epochs = 6
            trainer.train(resume_from_checkpoint=True)
        found = trainer.evaluate()
        if trainer.is_world_process_zero():
            print("loss", found["eval_loss"] > 0)
        torch.distributed.barrier()  # The folder goes when rank 0 has left: nobody may still be writing.


if __name__ == "__main__":
    for name in sys.argv[1:] or KINDS:
        main(name)
        accelerate.state.AcceleratorState._reset_state()  # Each has settings of its own.
        if torch.distributed.get_rank() == 0:
            print(name, "done", flush=True)
    torch.distributed.destroy_process_group()
