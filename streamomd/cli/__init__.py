"""The command line: parse, call, print. A file a kind of command; each registers its own."""

from streamomd.cli import cluster, models, runs, tools
from streamomd.cli.base import main

__all__ = ["cluster", "main", "models", "runs", "tools"]
