"""Train a regressor on a table, four micro-batches to an optimizer step, with a warm-up schedule."""

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ACCUMULATE = 4


class Table(Dataset):
    def __init__(self, rows=12_288, columns=256):
        rng = np.random.default_rng(0)
        self.x = rng.standard_normal((rows, columns), dtype=np.float32)
        self.y = (self.x[:, :8].sum(axis=1) + np.sin(3 * self.x[:, 8])).astype(np.float32)
        self.mean, self.std = self.x.mean(axis=0), self.x.std(axis=0)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return (self.x[index] - self.mean) / self.std, self.y[index]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(Table(), batch_size=128, shuffle=True, drop_last=True)
    model = nn.Sequential(
        *(nn.Linear(256, 1024), nn.GELU(), nn.LayerNorm(1024)),
        *(nn.Linear(1024, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Dropout(0.1), nn.Linear(1024, 1)),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    steps = args.epochs * len(loader) // ACCUMULATE
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=steps)
    running = 0.0
    for epoch in range(args.epochs):
        for number, (x, y) in enumerate(loader, 1):
            loss = nn.functional.smooth_l1_loss(model(x).squeeze(1), y)
            (loss / ACCUMULATE).backward()
            running += loss.item()
            if number % ACCUMULATE == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 5.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            if number % 32 == 0:
                print(f"epoch {epoch} batch {number} loss {running / 32:.4f} lr {schedule.get_last_lr()[0]:.4f}")
                running = 0.0


if __name__ == "__main__":
    main()
