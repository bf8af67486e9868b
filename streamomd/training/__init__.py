"""A model and its training loop: session, checkpoints, progress, evaluation."""
