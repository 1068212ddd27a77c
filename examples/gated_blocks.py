"""Train a small gated network whose compiler was left on a debugging backend."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, width)
        self.scale = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        y = self.up(x)
        gate = torch.sigmoid(1.702 * y) * y
        gate = gate * self.scale + self.shift
        gate = torch.tanh(gate) * torch.exp(-gate.square() * 0.1) + 0.5 * gate.sin()
        return x + gate / (1 + gate.abs())


class Net(nn.Module):
    def __init__(self, width=64, depth=6):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Net()
    step_of = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data, labels = torch.randn(64, 2048, 64), torch.randint(0, 10, (64, 2048))
    for step in range(400):
        loss = nn.functional.cross_entropy(step_of(data[step % 64]), labels[step % 64])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
