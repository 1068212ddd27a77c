"""Train a small character model from a memory-mapped file, with evaluation and checkpoints."""

import argparse
import tempfile

import numpy as np
import torch
from torch import nn

BLOCK, BATCH, WIDTH, VOCAB = 64, 16, 64, 64


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(VOCAB, WIDTH), nn.Embedding(BLOCK, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.1, "gelu", batch_first=True, norm_first=True)
        self.blocks, self.head = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False), nn.Linear(WIDTH, VOCAB)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(BLOCK))

    def forward(self, x, y):
        hidden = self.blocks(self.token(x) + self.place(torch.arange(BLOCK)), mask=self.mask, is_causal=True)
        return nn.functional.cross_entropy(self.head(hidden).flatten(0, 1), y.flatten())


def get_batch(path):
    data = np.memmap(path, dtype=np.uint16, mode="r")
    starts = torch.randint(len(data) - BLOCK - 1, (BATCH,)).tolist()
    rows = torch.stack([torch.from_numpy(data[s : s + BLOCK + 1].astype(np.int64)) for s in starts])
    return rows[:, :-1], rows[:, 1:]


@torch.no_grad()
def estimate_loss(model, path):
    model.eval()
    loss = sum(model(*get_batch(path)).item() for _ in range(5)) / 5
    model.train()
    return loss


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    args = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/train.bin"
        (np.cumsum(np.random.default_rng(0).integers(0, 3, 200_000)) % VOCAB).astype(np.uint16).tofile(path)
        model = GPT()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
        for step in range(args.steps):
            if step % 40 == 0:
                print(f"step {step} evaluation loss {estimate_loss(model, path):.3f}")
                torch.save({"model": model.state_dict(), "step": step}, f"{folder}/ckpt.pt")
            loss = model(*get_batch(path))
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
