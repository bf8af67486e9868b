"""What must never happen, each with its test. Elsewhere: hostile names, links, sizes and manifests
in test_checkpoint_hostile, fuzzed bytes in test_fuzz, retention in test_checkpoint_retention,
secrets in test_secrets, every URL redacted in test_shards_find, brokers that only a checkpoint
names in test_kafka_brokers, metadata of tables in test_iceberg.
"""

from __future__ import annotations

import ast
import os
import pickle
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import everything, rows, run, shards, train, write

import streamomd
from streamomd.checkpoint.sealed_json import seal, unseal
from streamomd.config.run_tables import Cluster
from streamomd.core.errors import StreamomdError

PACKAGE = Path(streamomd.__file__).parent
CANARY = "CANARY"
MODULES = {
    "pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "subprocess", "code",
    "codeop", "runpy", "telnetlib", "xmlrpc", "ftplib", "smtplib",
}  # fmt: skip
CALLS = {
    "eval", "exec", "__import__", "system", "popen", "Popen", "import_module", "mktemp",
    "load_module", "unsafe_load", "full_load", "read_pickle",
}  # fmt: skip
ALLOWED = {  # what each of them is told: names of the package's own files, or none of data
    ("import_module", "__init__.py"), ("import_module", "rules/__init__.py"),
    ("import_module", "losses/__init__.py"),
    ("import_module", "config/cluster_choice.py"),  # test_a_cluster_factory_is_named_by_a_person
    ("subprocess", "features/warm_kernels.py"),  # Python itself with a constant, see its tests
    ("Popen", "features/warm_kernels.py"),
}  # fmt: skip


def called(node: ast.Call) -> str:
    """The last word of what is called."""
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def wrongs(tree: ast.AST) -> Iterator[str]:
    """Imports and calls by which data could become code."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from {alias.name.split(".")[0] for alias in node.names} & MODULES
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from {node.module.split(".")[0]} & MODULES
        elif isinstance(node, ast.Call):
            literal = bool(node.args) and isinstance(node.args[0], ast.Constant)
            if called(node) in CALLS and not (literal and called(node) == "import_module"):
                yield called(node)
            for keyword in node.keywords:
                on = not (isinstance(keyword.value, ast.Constant) and keyword.value.value is False)
                if keyword.arg in ("allow_pickle", "shell") and on:
                    yield keyword.arg
            loader = ast.unparse(node.func)
            if loader == "yaml.load" or (loader == "np.load" and not node.keywords):
                yield loader


def test_nothing_makes_code_of_data() -> None:
    """No file of the package imports or calls what runs, or unpickles, what it is given."""
    found = {
        (wrong, str(file.relative_to(PACKAGE)))
        for file in PACKAGE.rglob("*.py")
        for wrong in wrongs(ast.parse(file.read_text("utf-8")))
    }
    assert found == ALLOWED


def test_a_cluster_factory_is_named_by_a_person() -> None:
    """It is made of an option of the command line and of Dask's configuration, nowhere else; a job
    has no key for it. A job that names one: test_ways_to_clusters."""
    made = {
        str(file.relative_to(PACKAGE))
        for file in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Call) and called(node) == "ClusterFactory"
    }
    assert made == {"cli/options.py", "config/cluster_choice.py"}
    assert {*Cluster.model_fields} == {
        "scheduler", "window", "decode", "learner", "workers", "resources",
    }  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["import pickle", "from joblib import load", "eval(x)", "os.system(x)", "yaml.load(x)",
     "np.load(x)", "np.load(x, allow_pickle=True)", "f(shell=y)", "importlib.import_module(x)"],
)  # fmt: skip
def test_the_scan_sees(text: str) -> None:
    """Each of these is found; the safe ways are not."""
    assert list(wrongs(ast.parse(text)))
    safe = "np.load(x, allow_pickle=False); yaml.safe_load(x); f(shell=False); ast.literal_eval(x)"
    safe += "; import_module('pandas')"
    assert not list(wrongs(ast.parse(safe)))


LOAD = """
import sys, streamomd
url = sys.argv[1]
from streamomd.rules import all_rules
all_rules()                          # the package's own files, one of which a name may lead to
model = streamomd.load(url)          # whatever a first load imports
seen = []
NEVER = (
    "import", "exec", "compile", "pickle.find_class", "marshal.loads", "os.system", "os.exec",
    "os.posix_spawn", "os.fork", "subprocess.Popen", "socket.connect", "socket.getaddrinfo",
    "ctypes.dlopen", "code.__new__", "os.remove", "os.rename", "shutil.rmtree",
)

def hook(event, given):
    # typing evaluates the annotations of the package's own rules: no text of a checkpoint.
    own = event == "exec" and sys._getframe(1).f_code.co_filename.endswith("/typing.py")
    if event in NEVER and not own:
        seen.append((event, given))

sys.addaudithook(hook)
again = streamomd.load(url)
assert again.state_sha256 == model.state_sha256
for hostile in sys.argv[2:]:
    try:
        streamomd.load(hostile)
    except streamomd.core.errors.StreamomdError:
        pass
known = [one for one in seen if not (one[0] == "import" and one[1][0] in sys.modules)]
print(known)
"""


class Bomb:
    """What would leave a file behind if it was unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def copies(kept: Path, bomb: bytes) -> Iterator[Path]:
    """The checkpoint with a pickle in the place of each of its files, and hostile names in it."""
    files = [path.relative_to(kept) for path in sorted(kept.rglob("*")) if path.is_file()]
    for at, name in enumerate(files):
        copy = kept.parent / f"pickled-{at}"
        subprocess.run(["cp", "-r", str(kept), str(copy)], check=True)
        (copy / name).write_bytes(bomb)
        yield copy
    for at, rule in enumerate(("os.system", "pickle", "streamomd.cli", "../nag", "nag;import os")):
        copy = kept.parent / f"named-{at}"
        subprocess.run(["cp", "-r", str(kept), str(copy)], check=True)
        for manifest in (copy / "commits").iterdir():
            fields, _ = unseal(manifest.read_bytes())
            fields["document"]["job"]["model"]["rule" if at % 2 else "loss"] = rule
            manifest.write_bytes(seal(fields))
        yield copy


def test_loading_runs_and_imports_nothing(tmp_path: Path) -> None:
    """Under an audit hook a checkpoint, whole or hostile, is read: nothing is run, imported,
    unpickled, connected to or deleted."""
    path = write(tmp_path / "a.parquet", rows(20))
    train(path, *everything(), "--checkpoint", tmp_path / "kept", "--set", "checkpoint.keep=1")
    bomb = pickle.dumps(Bomb(tmp_path / "exploded"))
    hostile = [str(copy) for copy in copies(tmp_path / "kept", bomb)]
    words = [sys.executable, "-c", LOAD, str(tmp_path / "kept"), *hostile]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
    assert not (tmp_path / "exploded").exists()


def test_files_of_a_checkpoint_are_not_for_others_to_write(tmp_path: Path) -> None:
    """Whatever the umask: neither group nor others may write a file."""
    path = write(tmp_path / "a.parquet", rows(20))
    before = os.umask(0)
    try:
        train(path, *everything(), "--checkpoint", tmp_path / "kept")
    finally:
        os.umask(before)
    modes = {file: file.stat().st_mode for file in (tmp_path / "kept").rglob("*") if file.is_file()}
    assert modes
    assert not [str(file) for file, mode in modes.items() if mode & 0o022]


EVIL = [
    "a\nb", "a\rb", "\x1b[31ma", "\x1b]0;x\x07", "a\u202eb", "a\u2066b", "\x9b31m", "a\x08",
    "\u2028a", "a\x7fb",
]  # fmt: skip


@pytest.mark.parametrize(
    "evil", [*EVIL[:2], *(pytest.param(one, marks=pytest.mark.slow) for one in EVIL[2:])]
)
def test_names_do_not_forge_lines(evil: str, tmp_path: Path) -> None:
    """Line ends, terminal codes and direction marks in names of shards, columns, categories,
    labels and checkpoints reach no terminal as such."""
    table = rows(20)
    columns = {**{name: table.column(name) for name in "yn"}, f"h{evil}": [f"c{evil}"] * 20}
    data = tmp_path / f"d{evil}"
    write(data / f"s{evil}.parquet", columns)
    kept = tmp_path / f"k{evil}"
    every = ["--label", "y", "--checkpoint", kept]
    done = [run("train", data, *every), run("inspect", kept), run("checkpoint", "list", kept)]
    assert [one.code for one in done] == [0, 0, 0]
    done += [
        run("train", data, "--label", f"y{evil}", "--checkpoint", "none"),
        run("train", data, "--label", f"h{evil}", "--checkpoint", "none"),
        run("train", data, *every),
        run("train", f"{data}/none{evil}", *every, "--restart"),
        run("train", data, "--label", "y", "--rule", evil, "--checkpoint", "none"),
        run("train", data, "--label", "y", "--set", f"{evil}=1", "--checkpoint", "none"),
        run("resume", f"{kept}{evil}"),
    ]
    assert 0 not in [one.code for one in done[3:]]
    columns["n"] = [float("nan")] * 20
    write(data / f"s{evil}.parquet", columns)
    done.append(run("train", data, *every, "--restart"))
    done.append(run("resume", kept))
    (data / f"foreign{evil}").touch()
    done.append(run("train", data, *every, "--restart"))
    for one in done:
        for text in (one.out, one.err):
            assert evil not in text
            assert all(c.isprintable() or c == "\n" for c in text), ascii(text)


def test_floors_of_what_had_holes() -> None:
    """pyarrow runs no code of a file since 14.0.1; Dask's pages are mended since 2026.1.1."""
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text("utf-8"))["project"]
    floors = dict(one.split(">=") for one in project["dependencies"] if ">=" in one)
    floors = {
        name: tuple(map(int, text.split(";")[0].split(",")[0].split(".")))
        for name, text in floors.items()
    }
    assert floors["pyarrow"] >= (14, 0, 1)
    assert floors["dask[distributed]"] >= (2026, 1, 1)


def test_a_model_that_was_refused_leaves_the_shards_alone(tmp_path: Path) -> None:
    """A mistyped checkpoint URL deletes and changes nothing that stood there."""
    shards(tmp_path / "data")
    before = {path: path.read_bytes() for path in (tmp_path / "data").iterdir()}
    for words in (["train", tmp_path / "data", *everything(), "--checkpoint", tmp_path / "data"],
                  ["train", tmp_path / "data", *everything(), "--checkpoint", tmp_path / "data",
                   "--restart"], ["resume", tmp_path / "data"]):  # fmt: skip
        assert run(*words).code != 0
    assert {path: path.read_bytes() for path in (tmp_path / "data").iterdir()} == before
    with pytest.raises(StreamomdError):
        streamomd.load(str(tmp_path / "data"))
