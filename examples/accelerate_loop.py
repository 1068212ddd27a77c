"""Train a recurrent tagger in a loop of one's own around an Accelerator."""

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORDS, TAGS, LENGTH = 200, 8, 40


class Sentences(Dataset):
    def __init__(self, count):
        self.words = torch.randint(WORDS, (count, LENGTH))

    def __len__(self):
        return len(self.words)

    def __getitem__(self, index):
        return {"words": self.words[index], "tags": self.words[index].roll(1) % TAGS}


class Tagger(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True, bidirectional=True, dropout=0.1)
        self.head = nn.Linear(2 * width, TAGS)

    def forward(self, words):
        return self.head(self.lstm(self.embedding(words))[0])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    set_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = Tagger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    loader = DataLoader(Sentences(1280), batch_size=32, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(args.epochs):
        for step, batch in enumerate(loader):
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(batch["words"]).flatten(0, 1), batch["tags"].flatten())
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            if step % 20 == 0:
                accelerator.print(f"epoch {epoch} step {step} loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
