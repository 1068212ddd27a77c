"""Find why a PyTorch training run is slow, fix it, and prove the fix."""

__version__ = "0.1.0"
