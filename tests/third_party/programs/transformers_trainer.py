"""Hugging Face's Trainer under torchrun: a BERT of one layer that is made here, trained, evaluated and saved."""

import tempfile
import warnings

import torch
import transformers

torch.set_num_threads(1)
warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()


class Sentences(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> dict:
        words = torch.randint(4, 60, (12,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": words[0] % 2}


def main() -> None:
    transformers.set_seed(3)
    config = transformers.BertConfig(vocab_size=64, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                                     intermediate_size=32, max_position_embeddings=16)
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder, use_cpu=True, per_device_train_batch_size=4, num_train_epochs=2, eval_strategy="epoch",
            save_strategy="epoch", report_to="none", disable_tqdm=True, log_level="error", logging_strategy="no")
        trainer = transformers.Trainer(transformers.BertForSequenceClassification(config), arguments,
                                       train_dataset=Sentences(), eval_dataset=Sentences())
        trainer.train()
        found = trainer.evaluate()
        if trainer.is_world_process_zero():
            print("loss", round(found["eval_loss"], 3))
        torch.distributed.barrier()  # The folder goes when rank 0 has left: nobody may still be writing.


if __name__ == "__main__":
    main()
    torch.distributed.destroy_process_group()
