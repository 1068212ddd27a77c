"""Train a generator against a discriminator: two optimizers, two backward passes a step."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

LATENT = 32


def rings(count):
    """Return images (count, 1, 16, 16) of a ring of random radius."""
    axis = torch.linspace(-1, 1, 16)
    radius = torch.hypot(axis[:, None], axis[None, :])
    return torch.tanh(4 - 30 * (radius - (0.3 + 0.5 * torch.rand(count, 1, 1))).abs())[:, None]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(rings(2048)), batch_size=64, shuffle=True, drop_last=True)
    generator = nn.Sequential(
        *(nn.Linear(LATENT, 64 * 16), nn.Unflatten(1, (64, 4, 4)), nn.BatchNorm2d(64), nn.ReLU()),
        *(nn.ConvTranspose2d(64, 48, 4, 2, 1), nn.BatchNorm2d(48), nn.ReLU()),
        *(nn.ConvTranspose2d(48, 1, 4, 2, 1), nn.Tanh()),
    )
    discriminator = nn.Sequential(
        *(nn.Conv2d(1, 48, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(48, 96, 4, 2, 1), nn.LeakyReLU(0.2)),
        *(nn.Flatten(), nn.Linear(96 * 16, 1)),
    )
    loss_of = nn.BCEWithLogitsLoss()
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    real, fake = torch.ones(64, 1), torch.zeros(64, 1)
    for epoch in range(args.epochs):
        for images, *_ in loader:
            drawn = generator(torch.randn(64, LATENT))
            optimizer_d.zero_grad()
            loss_d = loss_of(discriminator(images), real) + loss_of(discriminator(drawn.detach()), fake)
            loss_d.backward()
            optimizer_d.step()
            optimizer_g.zero_grad()
            loss_g = loss_of(discriminator(drawn), real)
            loss_g.backward()
            optimizer_g.step()
        print(f"epoch {epoch} discriminator {loss_d.item():.3f} generator {loss_g.item():.3f}")


if __name__ == "__main__":
    main()
