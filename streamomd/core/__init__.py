"""Errors, URLs, batches and compilation: what every other package may use."""
