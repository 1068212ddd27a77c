"""Train an autoencoder with the Lightning Trainer: validation each epoch, a checkpoint of the best."""

import argparse
import tempfile

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Autoencoder(lightning.LightningModule):
    def __init__(self, size=784, hidden=512):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(size, hidden), nn.ReLU(), nn.Linear(hidden, 32))
        self.decoder = nn.Sequential(nn.Linear(32, hidden), nn.ReLU(), nn.Linear(hidden, size))

    def step(self, batch, name):
        x, *_ = batch
        loss = nn.functional.mse_loss(self.decoder(self.encoder(x)), x)
        self.log(f"{name}_loss", loss, prog_bar=True)
        return loss

    def training_step(self, batch, batch_idx):
        return self.step(batch, "train")

    def validation_step(self, batch, batch_idx):
        return self.step(batch, "val")

    def on_validation_epoch_end(self):
        print(f"epoch {self.current_epoch} validation loss {self.trainer.callback_metrics['val_loss']:.4f}")

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    lightning.seed_everything(0)
    data = torch.randn(9216, 16) @ torch.randn(16, 784)
    train = DataLoader(TensorDataset(data[:8192]), batch_size=64, shuffle=True)
    validation = DataLoader(TensorDataset(data[8192:]), batch_size=128)
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            max_epochs=args.epochs,
            accelerator="cpu",
            default_root_dir=folder,
            logger=False,
            callbacks=[ModelCheckpoint(folder, monitor="val_loss")],
            enable_progress_bar=False,
        )
        trainer.fit(Autoencoder(), train, validation)


if __name__ == "__main__":
    main()
