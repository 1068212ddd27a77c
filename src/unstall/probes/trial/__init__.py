"""What runs inside a training process for a trial only: found by walking this folder, as the probes beside it."""
