"""The command line: parse, call, print. A file a kind of command; each registers its own."""

from streamomd.cli import (
    checkpoint_commands,
    model_commands,
    plan_command,
    report_command,
    run_commands,
    service_commands,
    sweep_command,
    tool_commands,
)
from streamomd.cli.command_group import main

__all__ = [
    "checkpoint_commands",
    "main",
    "model_commands",
    "plan_command",
    "report_command",
    "run_commands",
    "service_commands",
    "sweep_command",
    "tool_commands",
]
