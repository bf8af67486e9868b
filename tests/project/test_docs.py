"""README and docs: every block of code runs as it stands, or says why it can't and is parsed."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path

import click
import pytest
from docs_session import Session
from documented import PAGES, ROOT, Block, blocks, inline, parse, parse_command, to_run

from streamomd.core.errors import UsageError

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Dask, by pandas

BLOCKS = {page: blocks(path) for page, path in PAGES.items()}
RUN = [page for page in BLOCKS if [*to_run(page, slow=False)]]
SLOW = [page for page in BLOCKS if any(block.mark == "slow" for block in BLOCKS[page])]


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh current directory with the bundled recipes and data."""
    (tmp_path / "pipelines").symlink_to(ROOT / "pipelines")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_all(page: str, *, slow: bool) -> None:
    session = Session(page)
    for block in to_run(page, slow=slow):
        try:
            session.run(block)
        except Exception as error:
            error.add_note(f"{page}, line {block.line}")
            raise


@pytest.mark.parametrize("page", RUN)
def test_blocks_run(page: str, fresh: Path) -> None:
    """The blocks of a page run in order, and print what the page says."""
    run_all(page, slow=False)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # a cluster's own, at its end
@pytest.mark.parametrize("page", SLOW)
def test_slow_blocks_run_too(page: str, fresh: Path) -> None:
    """Also those that take long."""
    run_all(page, slow=True)


@pytest.mark.parametrize("page", BLOCKS)
def test_blocks_parse(page: str) -> None:
    """Also what is not run is of its language, and names commands and options there are."""
    for block in BLOCKS[page]:
        parse(block)
    for text in inline(PAGES[page]):
        with contextlib.suppress(click.MissingParameter):  # a command's name alone
            parse_command(shlex.split(text)[1:])


def test_what_is_marked_has_a_mark_that_is_read() -> None:
    """No comment looks like a mark and is none: by a slip, or because no block follows."""
    for page, path in PAGES.items():
        marks = [block for block in BLOCKS[page] if block.mark]
        assert path.read_text("utf-8").count("<!-- ") == len(marks), page


def test_a_wrong_command_is_noticed() -> None:
    """An option or a command that there is not makes a block fail, also unrun."""
    for text in ("streamomd train data --lable y", "x && streamomd trian data", "streamomd resume"):
        with pytest.raises(click.UsageError):
            parse(Block(1, "bash", text, "not run", "a test"))
    with pytest.raises(UsageError, match="no parameter 'l1'"):
        parse(Block(1, "bash", "streamomd train data --label y --rule pa1 --set l1=1"))
    with pytest.raises(AssertionError, match="nobody knows"):
        parse(Block(1, "klingon", ""))


def test_other_figures_are_noticed(fresh: Path) -> None:
    """A line of output that was not printed fails; what is left open may be anything."""
    session = Session("page", said="12 rows, loss 0.25 in 3.1 s\nkept\n")
    session.run(Block(1, "text", "12 rows, loss 0.25 in … s\nkept"))
    with pytest.raises(AssertionError, match=r"0\.26"):
        session.run(Block(1, "text", "12 rows, loss 0.26"))
    with pytest.raises(AssertionError, match="Got"):
        session.run(Block(1, "python", ">>> 1 + 1\n3\n"))
