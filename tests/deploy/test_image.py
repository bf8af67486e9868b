"""The image's Dockerfile: linted, held to rules, and its steps done without an engine."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import tarfile
import tomllib
from pathlib import Path

import dockerfile
import pytest
from deploying import DEPLOY, ROOT, environment, tool
from dockerfile import FILE, Build, copied, default, let_through, stages, steps, variables

STEPS = steps(FILE.read_text())
BUILD, IMAGE = stages(STEPS)
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def lint(text: str) -> str:
    """What hadolint finds."""
    done = subprocess.run([tool("hadolint"), "-"], input=text, capture_output=True, text=True)
    return done.stdout + done.stderr


def test_the_linter_finds_nothing() -> None:
    """And it does find what is wrong."""
    assert lint(FILE.read_text()) == ""
    assert "DL3007" in lint("FROM python:latest\n")


def test_the_base_is_pinned() -> None:
    """Both stages stand on one image, of a patch version and a Debian release, by its tag."""
    (tag,) = [value for name, value in map(default, dict(STEPS[:1]).values()) if name == "PYTHON"]
    assert re.fullmatch(r"3\.\d+\.\d+-slim-[a-z]+", tag)
    assert [stage[0] for stage in (BUILD, IMAGE)] == [
        ("FROM", "python:${PYTHON} AS build"),
        ("FROM", "python:${PYTHON}"),
    ]


def test_nobody_is_root() -> None:
    """The user is a number, so that Kubernetes can tell; it warms its own cache, in its home."""
    names = [name for name, _ in IMAGE]
    (user,) = [rest for name, rest in IMAGE if name == "USER"]
    assert int(user) > 0
    assert ("RUN", f"useradd --create-home --uid {user} streamomd") in IMAGE
    set_ = dict(pair for name, rest in IMAGE if name == "ENV" for pair in variables(rest))
    assert set_["NUMBA_CACHE_DIR"].startswith("/home/streamomd/")
    assert names.index("USER") < names.index("RUN", names.index("USER"))
    assert "HEALTHCHECK" in names


def test_no_secret_can_be_in_a_layer() -> None:
    """No argument or variable is one, and nothing that may hold one comes into the build."""
    given = [default(rest)[0] for name, rest in STEPS if name == "ARG"]
    given += [key for name, rest in STEPS if name == "ENV" for key, _ in variables(rest)]
    assert [one for one in given if re.search("KEY|SECRET|TOKEN|PASS|CREDENTIAL", one)] == []
    assert all(not rest.startswith("http") for name, rest in STEPS if name == "ADD")
    for name in (
        ".env",
        "deploy/.env",
        ".git/config",
        ".aws/credentials",
        "runs/x",
        ".venv/bin/pip",
    ):
        assert not let_through(name), name
    assert not let_through("streamomd/__pycache__/cli.cpython-313.pyc")


def test_what_is_copied_is_there() -> None:
    """In the repository, and let through by the ignore file."""
    for name, rest in STEPS:
        if name == "COPY" and not copied(rest)[2]:
            for source in copied(rest)[0]:
                assert (ROOT / source).exists(), source
                assert let_through(source), source


def test_all_say_the_same_version() -> None:
    """Of streamomd: the package, the image that is built, and the image that is run."""
    files = [FILE, DEPLOY / "compose.yaml", *(DEPLOY / "kubernetes").glob("*.yaml")]
    files += [*DEPLOY.glob("*.md")]
    tags = {
        found for file in files for found in re.findall(r"streamomd:(\d[\w.]*\w)", file.read_text())
    }
    assert tags == {VERSION}


def test_the_image_has_what_the_wheel_contains() -> None:
    """Each file that the wheel takes from outside of the package, and each licence."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {*wheel["force-include"], *project["project"]["license-files"]}
    given = {one for name, rest in BUILD if name == "COPY" for one in copied(rest)[0]}
    for name in needed:
        assert {name, *map(str, Path(name).parents)} & given
        assert let_through(name)


@pytest.mark.parametrize(("port", "code"), [("", 0), ("1", 1)])
def test_health(port: str, code: int) -> None:
    """Without a port nothing is asked; where nobody answers it is ill."""
    done = subprocess.run(["healthy"], env=environment(HEALTH_PORT=port), capture_output=True)
    assert done.returncode == code


def going_on(*given: object) -> subprocess.CompletedProcess[str]:
    """What go-on does with a run and flags."""
    command = ["go-on", *map(str, given), "--json"]
    return subprocess.run(command, env=environment(), cwd=ROOT, capture_output=True, text=True)


@pytest.mark.slow
def test_going_on(tmp_path: Path) -> None:
    """Begun where there is nothing, else gone on with; what is neither is told, and left."""
    job, url = tmp_path / "job.toml", tmp_path / "run"
    quickstart = (ROOT / "pipelines" / "quickstart.toml").read_text()
    job.write_text(quickstart + '[model]\nrule = "nag"\n')  # auto may undo a second pass
    first, again, more = [
        json.loads(going_on(job, url, *flags).stdout.splitlines()[-1])
        for flags in ((), (), ("--epochs", "2"))
    ]
    assert first["checkpoint"]["url"] == str(url)
    assert again["state_sha256"] == first["state_sha256"]
    assert more["rows"] == 2 * first["rows"]
    for commit in (url / "commits").iterdir():
        commit.write_text("{}")
    broken = going_on(job, url)
    assert broken.returncode == 4
    assert "streamomd: " in broken.stderr
    nowhere = going_on(job, "nosuch://bucket/run")
    assert nowhere.returncode == 2
    assert "nosuch" in nowhere.stderr


def held(folder: Path) -> dict[str, str]:
    """The files of a cache, by their contents."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def as_layer(folder: Path, packed: Path) -> None:
    """Through an archive, as a registry keeps it: times in whole seconds."""

    def whole(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.mtime = int(info.mtime)
        return info

    with tarfile.open(packed, "w", format=tarfile.PAX_FORMAT) as layer:
        layer.add(folder, arcname=".", filter=whole)
    shutil.rmtree(folder)
    with tarfile.open(packed) as layer:
        layer.extractall(folder, filter="fully_trusted")
    packed.unlink()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_steps_leave_a_warm_cache(tmp_path: Path) -> None:
    """Packed and unpacked, the quickstart and all that was warmed compile nothing; same bits."""
    build = Build(tmp_path)
    for step in (*BUILD, *IMAGE):
        build.do(step)
    as_layer(tmp_path / "opt", tmp_path / "layer.tar")
    home = Path(build.place("/home/streamomd"))
    cache = Path(build.variables["NUMBA_CACHE_DIR"])
    warm = held(cache)
    assert len(warm) >= 2 * len(build.variables["WARM"].split())
    train = ["streamomd", "train", "pipelines/quickstart.toml", "--json"]
    there = subprocess.run(train, cwd=home, env=build.variables, capture_output=True, check=True)
    (last,) = [rest for name, rest in IMAGE if name == "RUN" and rest.startswith("warm")]
    build.do(("RUN", last))
    assert held(cache) == warm
    here = subprocess.run(
        [*train, "--checkpoint", str(tmp_path / "here")],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        check=True,
    )
    states = [json.loads(one.stdout.splitlines()[-1])["state_sha256"] for one in (there, here)]
    assert states[0] == states[1]


def test_the_steps_are_understood() -> None:
    """The stand-in for an engine knows every instruction of the file."""
    known = {"FROM", "WORKDIR", "ENV", "ARG", "COPY", "RUN", "USER", "HEALTHCHECK", "CMD"}
    assert {name for name, _ in dockerfile.steps(FILE.read_text())} <= known
