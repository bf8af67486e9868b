"""The command line: parse, call, print. A file a kind of command; each registers its own."""

from streamomd.cli import (
    checkpoint_commands,
    cluster_commands,
    model_commands,
    plan_command,
    report_command,
    run_commands,
    serve_command,
    sweep_command,
    tool_commands,
)
from streamomd.cli.command_group import main

__all__ = [
    "checkpoint_commands",
    "cluster_commands",
    "init_command",
    "main",
    "model_commands",
    "plan_command",
    "report_command",
    "run_commands",
    "serve_command",
    "sweep_command",
    "tool_commands",
]
