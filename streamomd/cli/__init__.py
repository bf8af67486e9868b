"""The command line: parse, call, print. A file a kind of command; each registers its own."""

from streamomd.cli import (
    model_commands,
    plan_command,
    report_commands,
    run_commands,
    service_commands,
    sweep_command,
    tool_commands,
)
from streamomd.cli.command_group import main

__all__ = [
    "main",
    "model_commands",
    "plan_command",
    "report_commands",
    "run_commands",
    "service_commands",
    "sweep_command",
    "tool_commands",
]
