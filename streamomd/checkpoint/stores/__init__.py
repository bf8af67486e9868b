"""Where commits are stored: the local disk, and object stores through fsspec."""
