"""Errors, URLs, batches and compilation, used by every other package."""
