"""Checkpoints of every format there was: they load, predict and resume, to the bit, for ever."""

from __future__ import annotations

import copy
import hashlib
import re
import shutil
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.parquet as pq
import pytest
from flipping import last_byte

import streamomd
from streamomd.checkpoint import list_commits, open_store, read_commit, read_ledger
from streamomd.checkpoint.sealed_json import seal, unseal
from streamomd.core.errors import ChangedDataError, NoCommitError, StreamomdError

pytestmark = pytest.mark.smoke

GOLDEN = Path(__file__).parents[1] / "golden"
FORMATS = sorted(
    (path.name for path in GOLDEN.iterdir() if path.is_dir() and path.name[0] != "_"),
    key=lambda name: (name.startswith("release-"), [*map(int, re.findall(r"\d+", name))], name),
)
ROWS = {"exact": 180, "averaged": 120, "sharded": 192}
MODES = tuple(ROWS)
LOADED = {
    "exact": "1683ba9d9fabf1c61d63c1cf7584748a283f993652fff93b95b21a2356a828a8",
    "averaged": "99d60e27b7da779bb239eec52624349336abe510dc7e53c778137c1691756e0d",
    "sharded": "f9eacb0718961eba6c2411faa89d291d63ae00119f35e94b169bb75b9cbfe00a",
}
"""``state_sha256`` of what is loaded, in the middle of the first epoch."""
RESUMED = {
    "exact": "b854738ec01a6df339b2336c36b091c8c4e4b41043c53618c72b27b1a27251b9",
    "averaged": "45ff1122efea05df3cef8f9834891cf1603085bfb0839fd8c8e61509276b37d5",
    "sharded": "51ba8c6692c42bcb51e30650923c7edef7348963025013f38b1d7b92eace50ab",
}
"""And when its two epochs are learned."""
SCORES = {
    "exact": "2e5a9cb235b942c61ca873bff0d5684e1a124970a9d0626f93953290b1b20145",
    "averaged": "09eb68def2070841febed87672a88f9f98edc0ce5a0f56b17dcf22a386c198db",
    "sharded": "cc5f19f89ad8990a16b04ff6ca86c77791566e0a0097fcdcf23a4d919973241c",
}
"""SHA-256 of the scores that the loaded model gives its first shard."""
RESUMING = [MODES[0], *(pytest.param(mode, marks=pytest.mark.slow) for mode in MODES[1:])]


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[str, str], Path]:
    """A copy of a golden checkpoint, which a run may resume; its shards are in place."""
    sys.path.insert(0, str(GOLDEN))
    try:
        from make import put_shards
    finally:
        sys.path.remove(str(GOLDEN))
    put_shards()
    return lambda format_, mode: Path(shutil.copytree(GOLDEN / format_ / mode, tmp_path / "run"))


Copy = Callable[[str, str], Path]


def test_the_last_release_is_the_newest_golden() -> None:
    """Each release adds a checkpoint that all later versions load."""
    fields, _ = unseal(newest(GOLDEN / FORMATS[-1] / "exact").read_bytes())
    assert FORMATS[-1] == f"release-{fields['versions']['streamomd']}"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("format_", FORMATS)
def test_it_loads_as_what_it_was(format_: str, mode: str, copied: Copy) -> None:
    """Every commit is whole, and the newest has the bits it had when it was made."""
    url = str(copied(format_, mode))
    assert all(one["ok"] for one in list_commits(open_store(url), deep=True))
    model = streamomd.load(url)
    assert model.metrics.total_rows == ROWS[mode]
    assert model.state_sha256 == LOADED[mode]


@pytest.mark.parametrize("mode", RESUMING)
@pytest.mark.parametrize("format_", FORMATS)
def test_it_predicts_and_resumes(format_: str, mode: str, copied: Copy, tmp_path: Path) -> None:
    """Its scores are those it gave, and the rest of its rows leads where it led."""
    url = str(copied(format_, mode))
    files = streamomd.load(url).predict(str(GOLDEN / "a.parquet"), str(tmp_path / "out"))
    scores = b"".join(pq.read_table(file)["score"].to_numpy().tobytes() for file in files)
    assert hashlib.sha256(scores).hexdigest() == SCORES[mode]
    with a_client(mode) as client:
        model = streamomd.resume(url, client=client, quiet=True)
    assert model.state_sha256 == RESUMED[mode]
    assert model.metrics.total_rows == 480


DEFAULTS = {"release-0.2.0": "374120dfc733e3f9a466c2c5aeb0e7e5056cdd4d1e924627d5798ccdcec54d9c"}


def test_every_release_has_the_default_rule() -> None:
    assert [*DEFAULTS] == [name for name in FORMATS if name.startswith("release-")]


@pytest.mark.parametrize("format_", DEFAULTS)
def test_the_default_rule_loads_and_resumes(format_: str, copied: Copy) -> None:
    """With its block and its counts; where it leads depends on the machine's
    exp and log in the last bits."""
    url = str(copied(format_, "default"))
    model = streamomd.load(url)
    assert (model.state_sha256, model.metrics.total_rows) == (DEFAULTS[format_], ROWS["exact"])
    model = streamomd.resume(url, quiet=True)
    assert model.metrics.total_rows == 480
    assert model.result()["loss"] == pytest.approx(0.07558351626718562, rel=1e-9)


def a_client(mode: str) -> Any:
    """Averaged mode needs a cluster; one in this process sees its memory, where the shards are."""
    if mode != "averaged":
        return nullcontext()
    from distributed import Client

    return Client(processes=False, n_workers=2, dashboard_address=":0", set_as_default=False)


def newest(url: Path) -> Path:
    return max((url / "commits").iterdir())


PLACES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "manifest": lambda fields: fields,
    "format": lambda fields: fields["format"],
    "writer": lambda fields: fields["writer"],
    "parent": lambda fields: fields["parent"],
    "versions": lambda fields: fields["versions"],
    "part": lambda fields: fields["parts"][0],
    "document": lambda fields: fields["document"],
}


@pytest.mark.parametrize("place", PLACES)
def test_what_a_later_minor_format_adds_is_ignored(place: str, copied: Copy) -> None:
    """A key that is not known, of any kind, at any place where one may be added."""
    url = copied(FORMATS[-1], "exact")
    fields, _ = unseal(newest(url).read_bytes())
    for value in (None, 1, "x", [], {"later": 1}):
        edited = copy.deepcopy(fields)
        edited["format"]["minor"] = 7
        PLACES[place](edited)["later"] = value
        newest(url).write_bytes(seal(edited))
        assert streamomd.load(str(url)).state_sha256 == LOADED["exact"]
        assert streamomd.load(str(url)).sequence == 3


@pytest.mark.parametrize("change", ["major", "feature"])
def test_what_only_a_later_version_can_read_is_refused(change: str, copied: Copy) -> None:
    """The error names the version and says to upgrade; a readable older commit is not used."""
    url = copied(FORMATS[-1], "exact")
    fields, _ = unseal(newest(url).read_bytes())
    fields["versions"]["streamomd"] = "2.1"
    if change == "major":
        fields["format"]["major"] = 2
    else:
        fields["required_features"] = ["sparse-parts"]
    newest(url).write_bytes(seal(fields))
    why = "format 2" if change == "major" else "needs sparse-parts"
    with pytest.raises(NoCommitError, match=rf"by a newer streamomd 2\.1 .*{why}.*: upgrade"):
        streamomd.load(str(url))


@pytest.mark.parametrize("place", ["job", "plan"])
def test_keys_that_a_later_version_wrote_name_it(place: str, copied: Copy) -> None:
    """The error names both versions, says to upgrade, and is exit code 4; no key is in it."""
    url = copied(FORMATS[-1], "exact")
    fields, _ = unseal(newest(url).read_bytes())
    fields["versions"]["streamomd"] = "2.1"
    streamomd.load(str(url))
    fields["document"][place]["later"] = True
    newest(url).write_bytes(seal(fields))
    own = re.escape(streamomd.__version__)
    with pytest.raises(
        NoCommitError, match=rf"by streamomd 2\.1; this is {own}: upgrade"
    ) as caught:
        streamomd.load(str(url))
    assert "later" not in str(caught.value)
    assert caught.value.exit_code == 4


VALUES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "state version": lambda fields: fields["document"].update(state_version=99),
    "rule": lambda fields: fields["document"]["job"]["model"].update(rule="later"),
    "loss": lambda fields: fields["document"]["job"]["model"].update(loss="later"),
    "parameter": lambda fields: fields["document"]["job"]["model"].update(params={"later": 1}),
    "mode": lambda fields: fields["document"]["job"]["train"].update(mode="later"),
    "rule of a mode": lambda fields: fields["document"]["job"].update(
        train={**fields["document"]["job"]["train"], "mode": "sharded"},
        model={**fields["document"]["job"]["model"], "rule": "arow"},
    ),
    "kind of column": lambda fields: fields["document"]["plan"]["types"].append(["a"]),
    "nulls": lambda fields: fields["document"]["job"]["data"].update(nulls="later"),
    "hold-out": lambda fields: fields["document"].update(holdout_by="later"),
    "versions of tables": lambda fields: fields["document"].update(table_versions={"a": "b"}),
    "cursor": lambda fields: fields["document"].update(cursor="later"),
    "kind of commit": lambda fields: fields.update(kind="later"),
    "numbers": lambda fields: first_array(fields).__setitem__(0, "later"),
}


def first_array(fields: dict[str, Any]) -> Any:
    return next(iter(fields["parts"][0]["arrays"].values()))


@pytest.mark.parametrize("change", VALUES)
def test_values_that_a_later_version_wrote_name_it(change: str, copied: Copy) -> None:
    """As its keys: exit code 4, and no older commit is used. Of this version they are refused, or
    an older commit is used, as before."""
    url = copied(FORMATS[-1], "exact")
    fields, _ = unseal(newest(url).read_bytes())
    VALUES[change](fields)
    newest(url).write_bytes(seal(fields))
    try:
        assert streamomd.load(str(url)).sequence < 3
    except StreamomdError as error:
        assert "this is" not in str(error)  # noqa: PT017 (some are refused, some are corrupt)
    fields["versions"]["streamomd"] = "99.1"
    newest(url).write_bytes(seal(fields))
    own = re.escape(streamomd.__version__)
    with pytest.raises(
        NoCommitError, match=rf"was written by streamomd 99\.1; this is {own}: upgrade"
    ) as caught:
        streamomd.load(str(url))
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("place", ["job", "plan"])
def test_a_later_versions_model_keys_are_not_ignored(place: str, copied: Copy) -> None:
    """A setting that is not known here may change what is learned: it is refused by its name."""
    url = copied(FORMATS[-1], "exact")
    fields, _ = unseal(newest(url).read_bytes())
    fields["document"][place]["later"] = True
    newest(url).write_bytes(seal(fields))
    with pytest.raises(StreamomdError, match="later"):
        streamomd.load(str(url))


def ledger(url: Path) -> Any:
    """Of the newest commit."""
    store = open_store(str(url))
    return read_ledger(store, read_commit(store, int(newest(url).stem)))


@pytest.mark.parametrize("mode", RESUMING)
def test_a_checkpoint_without_digests_gets_them(mode: str, copied: Copy) -> None:
    """Format 1.0 has none: row groups that are read after resume are recorded, and verified."""
    url = copied("1.0", mode)
    assert not [*ledger(url).digests()]
    with a_client(mode) as client:
        streamomd.resume(str(url), client=client, quiet=True)
        assert {group for _, group, _ in ledger(url).digests()} == {0, 1, 2}
        change_labels()
        with pytest.raises(ChangedDataError, match="row group 1"):
            streamomd.resume(str(url), client=client, sets={"train.epochs": 3}, quiet=True)


@pytest.mark.parametrize("mode", RESUMING)
@pytest.mark.parametrize("format_", FORMATS[1:])
def test_its_digests_are_those_of_the_shards(format_: str, mode: str, copied: Copy) -> None:
    """What it has learned was hashed as it is hashed today; an older version refuses to read it."""
    url = copied(format_, mode)
    fields, _ = unseal(newest(url).read_bytes())
    compressed = [] if format_ == "1.1" else ["zstd"]
    assert fields["required_features"] == ["segments", *compressed]
    assert [*ledger(url).digests()]
    change_labels()
    with a_client(mode) as client, pytest.raises(ChangedDataError, match="row group 1"):
        streamomd.resume(str(url), client=client, quiet=True)


def change_labels() -> None:
    """Change a byte of the second row group of the first shard, which all modes have read."""
    memory, name = fsspec.filesystem("memory"), "/golden-shards/a.parquet"
    at = last_byte(GOLDEN / "a.parquet", 1, "y")
    data = bytearray(memory.cat_file(name))
    data[at] ^= 1
    modified = memory.store[name].modified
    memory.pipe_file(name, bytes(data))
    memory.store[name].modified = modified
