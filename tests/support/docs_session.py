"""A page of docs as its reader follows it: block after block, in one directory."""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from documented import ROOT, SHELL, Block, commands, lines_of, parse
from running import run

from streamomd.config.spec import Spec

OURS = re.compile(
    r"""(?P<command>streamomd ([^'"$|&;<>]|'[^']*'|"[^"$]*")+?)"""
    r"""(?P<tells> \|\| echo "exit code \$\?")?( +#.*)?"""
)
BOUND = re.compile(r"[$&]|<<")
AS_PRINTED = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass
class Session:
    """A page's blocks run one after another, in the current directory, with one namespace."""

    page: str
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})
    said: str = ""

    def run(self, block: Block) -> None:
        """Raises AssertionError, or what the block raises."""
        if block.language in SHELL:
            self.said = shell(block.reason if block.mark == "run as" else block.text)
        elif block.language == "python":
            self._python(block)
        elif block.language == "toml":
            self._toml(block.text)
        elif block.language == "text":
            self._compare(block.text)
        else:
            parse(block)

    def _python(self, block: Block) -> None:
        where = f"{self.page}, line {block.line}"
        named = re.match(r"# ([\w-]+\.py)\n", block.text)
        if named:
            Path(named[1]).write_text(block.text)
            return
        if ">>> " not in block.text:
            out = io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
                exec(compile(block.text, where, "exec"), self.names)
            self.said = out.getvalue()
            return
        test = doctest.DocTestParser().get_doctest(block.text, self.names, where, where, 0)
        told = io.StringIO()
        runner = doctest.DocTestRunner(optionflags=AS_PRINTED)
        with contextlib.redirect_stderr(io.StringIO()):
            failed = runner.run(test, out=told.write, clear_globs=False).failed
        self.names.update(test.globs)
        assert not failed, told.getvalue()

    def _toml(self, text: str) -> None:
        """A job, or a part of one; kept as the file that its first line names."""
        Spec.parse(tomllib.loads(text))
        named = re.match(r"# ([\w-]+\.toml)\b", text)
        if named:
            Path(named[1]).write_text(text)

    def _compare(self, text: str) -> None:
        rest = self.said
        for line in filter(None, map(str.strip, text.splitlines())):
            words = [".*?".join(map(re.escape, word.split("…"))) for word in line.split()]
            found = re.search(r"[ \t]+".join(words), rest)
            assert found, f"{self.page} says {line!r}, which was not printed; left:\n{rest}"
            rest = rest[found.end() :]


def shell(text: str) -> str:
    """What commands print, both ways. Ours run in this process where no variable, job in the
    background or the like binds the lines together: a start of Python takes seconds."""
    lines = [(line, OURS.fullmatch(line)) for line in lines_of(text)]
    if any(not ours and BOUND.search(line) for line, ours in lines):
        return _bash(text)
    return "".join(_ours(ours) if ours else _bash(line) for line, ours in lines)


def _ours(match: re.Match[str]) -> str:
    (words,) = commands(match["command"])
    done = run(*words[1:])
    code = f"exit code {done.code}\n" if match["tells"] and done.code else ""
    assert done.code == 0 or code, (words, done.err)
    return done.err + done.out + code


def _bash(text: str) -> str:
    bin_ = Path("bin").absolute()
    bin_.mkdir(exist_ok=True)
    for name, words in (("streamomd", "-m streamomd"), ("python", "")):
        (bin_ / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (bin_ / name).chmod(0o755)
    paths = {"PATH": f"{bin_}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        env={**os.environ, **paths}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout
