"""The site is built strictly, without the network; links lead somewhere; nothing is loaded from
elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from documented import ROOT

pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install 'streamomd[docs]'")

LOADED = re.compile(
    r'<(?:script|img|iframe|source)[^>]*\ssrc="(?:https?:)?//'
    r'|<link(?=[^>]*rel="(?:stylesheet|preconnect|icon)")[^>]*href="(?:https?:)?//'
    r"|@import|url\((?:https?:)?//"
)
# Whoever asks for an address, but of this machine, is told that there is no network.
OFFLINE = """
import socket
def refuse(*_, **__):
    raise OSError("the network is not to be used")
socket.socket.connect = socket.getaddrinfo = refuse
from mkdocs.__main__ import cli
cli()
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built once."""
    folder = tmp_path_factory.mktemp("site")
    words = ["build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_there(site: Path) -> None:
    """Each page of docs is one of the site; what links to what was checked by the build."""
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").with_suffix(".html")
        made = site / (name.with_name("index.html") if name.name == "README.html" else name)
        assert made.is_file(), name


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    """No script, style, font or picture comes over the network."""
    for made in (*site.rglob("*.html"), *site.rglob("*.css")):
        found = LOADED.search(made.read_text("utf-8"))
        assert found is None, (made, found)


def test_the_readmes_links_lead_somewhere() -> None:
    """Files that README links to are there, and so are their headings."""
    links = re.findall(r"\]\(([^)#:]+)(#[^)]*)?\)", (ROOT / "README.md").read_text("utf-8"))
    assert len(links) > 5
    for path, heading in links:
        assert (ROOT / path).exists(), path
        if heading:
            heads = re.findall(r"^#+ (.*)$", (ROOT / path).read_text("utf-8"), re.M)
            slugs = [
                re.sub(r"[^\w -]", "", head).strip().lower().replace(" ", "-") for head in heads
            ]
            assert heading[1:] in slugs, (path, heading)
