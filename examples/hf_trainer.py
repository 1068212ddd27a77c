"""Train a small BERT to tell two kinds of token sequences apart, with the transformers Trainer."""

import argparse
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed


class Sequences(Dataset):
    """Token sequences; the label tells whether token 7 occurs in the second half."""

    def __init__(self, count, length=32):
        self.tokens = torch.randint(1, 200, (count, length))
        self.tokens[: count // 2, -length // 4] = 7
        self.labels = (self.tokens[:, length // 2 :] == 7).any(dim=1).long()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        tokens = self.tokens[index]
        return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": self.labels[index]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=80)
    args = parser.parse_args()
    set_seed(0)
    config = BertConfig(
        vocab_size=200, hidden_size=96, num_hidden_layers=2, num_attention_heads=4, intermediate_size=384, num_labels=2
    )
    model = BertForSequenceClassification(config)
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            output_dir=folder,
            max_steps=args.steps,
            per_device_train_batch_size=32,
            learning_rate=5e-4,
            logging_steps=20,
            eval_strategy="steps",
            eval_steps=40,
            save_steps=40,
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            seed=0,
        )
        trainer = Trainer(model, settings, train_dataset=Sequences(4096), eval_dataset=Sequences(256))
        trainer.train()


if __name__ == "__main__":
    main()
