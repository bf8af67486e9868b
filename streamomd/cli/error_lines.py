"""Errors of a command: one line on stderr and the exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from streamomd.core.errors import StreamomdError
from streamomd.core.machine_errors import is_of_the_machine, one_line
from streamomd.core.urls import harmless


@contextmanager
def exit_on_error() -> Iterator[None]:
    """End the process for errors of streamomd and of the machine, and for Ctrl-C; others pass."""
    try:
        yield
    except StreamomdError as error:
        click.echo(f"streamomd: {harmless(str(error))}", err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        click.echo("streamomd: interrupted", err=True)
        sys.exit(130)
    except Exception as error:
        if not is_of_the_machine(error):
            raise
        click.echo(f"streamomd: {harmless(one_line(error))}", err=True)
        sys.exit(1)
