"""Compiled loops over the rows of a batch and over all coordinates."""
