"""Train compiled blocks whose activation the compiler sees, or with --hidden does not: it is an operator of the script."""

import argparse

import torch
from torch import nn


def leaky(x):
    return torch.where(x > 0, x, 0.1 * x)


@torch.library.custom_op("examples::hidden_leaky", mutates_args=())
def hidden_leaky(x: torch.Tensor) -> torch.Tensor:
    return leaky(x)


@hidden_leaky.register_fake
def shape_of(x):
    return torch.empty_like(x)


@torch.library.custom_op("examples::hidden_leaky_backward", mutates_args=())
def hidden_leaky_backward(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 0, grad, 0.1 * grad)


@hidden_leaky_backward.register_fake
def shape_of_backward(grad, x):
    return torch.empty_like(x)


hidden_leaky.register_autograd(
    lambda ctx, grad: hidden_leaky_backward(grad, ctx.saved_tensors[0]),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


class Block(nn.Module):
    def __init__(self, width, activation):
        super().__init__()
        self.norm, self.activation = nn.LayerNorm(width), activation
        self.gain, self.gate = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x):
        h = self.activation(self.norm(x) * self.gain)
        return x + h * torch.sigmoid(self.gate * h)


class Net(nn.Module):
    def __init__(self, activation, width=256, depth=6):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width, activation) for _ in range(depth))
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", action="store_true")
    hidden = parser.parse_args().hidden
    torch.manual_seed(0)
    net = Net(hidden_leaky if hidden else leaky)
    net.compile()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    data = torch.randn(8, 4096, 256)
    for step in range(200):
        loss = (net(data[step % 8]) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
