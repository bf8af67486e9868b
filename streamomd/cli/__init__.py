"""The command line: parse, call, print. A file a kind of command; each registers its own."""

from streamomd.cli import cluster, export, models, plan, report, runs, sweep, tools
from streamomd.cli.options import main

__all__ = ["cluster", "export", "main", "models", "plan", "report", "runs", "sweep", "tools"]
