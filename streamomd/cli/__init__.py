"""The command line: parse, call, print. A file a kind of command; each registers its own."""

from streamomd.cli import (
    backtest_command,
    checkpoint_commands,
    cluster_commands,
    export_command,
    init_command,
    model_commands,
    plan_command,
    report_command,
    run_commands,
    serve_command,
    sweep_command,
    tool_commands,
    update_command,
    warm_command,
)
from streamomd.cli.options import main

__all__ = [
    "backtest_command",
    "checkpoint_commands",
    "cluster_commands",
    "export_command",
    "init_command",
    "main",
    "model_commands",
    "plan_command",
    "report_command",
    "run_commands",
    "serve_command",
    "sweep_command",
    "tool_commands",
    "update_command",
    "warm_command",
]
