"""Train a small convolutional network on images that are read one by one from slow storage."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

READ_SECONDS = 0.002  # a round trip to an object store in the same region takes longer


def read_remote(key):
    """Read one image; the sleep stands for the network, so that the example needs none."""
    time.sleep(READ_SECONDS)
    generator = torch.Generator().manual_seed(key)
    label = key % 10
    image = torch.randn(3, 32, 32, generator=generator)
    image[:, :, 3 * label : 3 * label + 3] += 1.0
    return image, label


class RemoteImages(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        image, label = read_remote(index)
        if torch.rand(()) < 0.5:
            image = image.flip(1)
        return image, label


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(RemoteImages(1024), batch_size=32, shuffle=True)
    model = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 10)),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        for step, (images, labels) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
