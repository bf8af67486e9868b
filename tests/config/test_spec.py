"""Spec: a job's whole description; through JSON and TOML and back, without secrets."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from running import everything, rows, run, write
from vault import Vault, filled

import streamomd
from streamomd.config.build_job import build_job, parse_sets, read_job
from streamomd.config.spec import Spec
from streamomd.core.errors import UsageError
from streamomd.core.urls import is_inside, typed, without_secrets
from streamomd.losses import all_losses, find_loss
from streamomd.rules import all_rules

pytestmark = pytest.mark.smoke

CANARY = "CANARY"
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)
COLUMNS = st.lists(TEXT, max_size=3, unique=True)
WORDS = st.fixed_dictionaries(
    {"column": TEXT},
    optional={"ngrams": st.integers(1, 8), "counts": st.sampled_from(["presence", "count", "log"])},
)
NUMBER = st.floats(1e-6, 1e6)
PATH = st.from_regex(r"/[a-z]{1,5}/[a-z?# é*\[\]=%]{1,8}", fullmatch=True)


RULES = list(all_rules().values())  # imported here: the first draw must not count as slow


OF_CLASSES = tuple(name for name, loss in all_losses().items() if not loss.least)
"""Losses that may learn classes: others learn numbers above 0."""


def regresses(rule: Any) -> bool:
    """Whether a rule has a loss of numbers."""
    return not rule.losses.names or not all(find_loss(one).classifies for one in rule.losses.names)


@st.composite
def tables(draw: st.DrawFn) -> dict[str, Any]:
    """Nested tables of a legal job; any key may be left out."""
    rule = draw(st.sampled_from(RULES))
    params = rule.parse_params({})
    if "eta" in params:
        params["eta"] = draw(NUMBER)
    if rule.losses.lipschitz:
        params["L"] = draw(NUMBER)
    keys: dict[str, dict[str, Any]] = {
        "data": {
            "shards": st.one_of(PATH, st.lists(PATH, min_size=1, max_size=3)),
            "label": TEXT,
            "weight": TEXT,
            "numeric": COLUMNS,
            "hashed": st.one_of(TEXT, COLUMNS),
            "vectors": COLUMNS,
            "ignore": COLUMNS,
            "sparse": st.fixed_dictionaries(
                {"indices": TEXT, "values": TEXT}, optional={"size": st.integers(0, 2**31 - 2)}
            ),
            "text": st.one_of(TEXT, COLUMNS, st.lists(WORDS, max_size=2)),
            "dates": st.one_of(TEXT, COLUMNS),
            "crosses": st.lists(st.lists(TEXT, min_size=2, max_size=3, unique=True), max_size=2),
            "nulls": st.sampled_from(["error", "zero", "indicator", "mean", {"a": "mean"}]),
            "bits": st.integers(1, 30),
            "hash_seed": st.integers(0, 2**32 - 1),
            "order": st.sampled_from(["sorted", "given", "shuffled"]),
            "seed": st.integers(-(2**40), 2**40),
        },
        "model": {
            "rule": st.just(rule.name),
            "loss": st.sampled_from(rule.losses.names or OF_CLASSES),
            "task": st.sampled_from(
                ["auto", "classify", "regress"] if regresses(rule) else ["auto", "classify"]
            ),
            "classes": st.one_of(
                st.just([False, True]),
                st.lists(TEXT, max_size=4),
                st.lists(st.integers(-9, 9), max_size=4),
                st.lists(st.floats(-9, 9).map(lambda x: x + 0.5), max_size=4),
            ),
            "bias": st.booleans(),
            "dtype": st.sampled_from(["float64", "float32"]),
            "params": st.just(params),
        },
        "train": {"epochs": st.integers(1, 99), "prefetch": st.integers(1, 65_536)},
        "checkpoint": {
            "url": PATH,
            "every_seconds": st.floats(0, 1e9),
            "every_rows": st.integers(0, 2**50),
            "keep": st.integers(1, 99),
        },
    }
    job = {
        table: draw(st.fixed_dictionaries({}, optional=optional))
        for table, optional in keys.items()
    }
    job["model"]["rule"] = rule.name
    if rule.storage.kind == "block":
        job["model"]["bias"] = True
    if rule.losses.lipschitz:  # not every loss has a bound to stand for it
        job["model"]["params"] = params
    return job


def as_toml(value: Any) -> str:
    """A value as TOML: a basic string with every doubtful character escaped."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {as_toml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    if isinstance(value, str):
        return '"' + "".join(f"\\U{ord(c):08x}" for c in value) + '"'
    return json.dumps(value)


# Drawing a job is slow where another process compiles beside it; that is no fault of the job.
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tables())
def test_round_trips(job: dict[str, Any]) -> None:
    """Every legal job is the same Spec after JSON, after JSON again, and after TOML."""
    spec = Spec.parse(job)
    saved = spec.to_json()
    assert Spec.parse(json.loads(json.dumps(saved, allow_nan=False))) == spec
    assert Spec.parse(saved).to_json() == saved
    lines = [
        f"[{table}]\n" + "\n".join(f"{key} = {as_toml(value)}" for key, value in keys.items())
        for table, keys in job.items()
    ]
    assert Spec.parse(tomllib.loads("\n".join(lines))) == spec


def built(*job: Any) -> Any:
    """The Spec of a job, or why it is refused: the checkpoint may have been drawn in the data."""
    try:
        return build_job(*job)
    except UsageError as refused:
        return str(refused)


@given(tables(), st.data())
def test_sets_are_keys(job: dict[str, Any], draw: st.DataObject) -> None:
    """A key given by --set is the key given in the job."""
    named = [(table, key) for table, keys in job.items() for key in keys if key != "params"]
    table, key = draw.draw(st.sampled_from(named))
    full = {**job, "data": {"shards": "/s", "label": "y", **job["data"]}}
    less = {name: dict(keys) for name, keys in full.items()}
    less[table].pop(key, None)
    less["model"]["rule"] = full["model"]["rule"]
    less["model"].setdefault("bias", True)
    sets = parse_sets((f"{table}.{key}={as_toml(full[table][key])}",))
    full["checkpoint"].setdefault("url", "none")
    less["checkpoint"].setdefault("url", "none")
    assert built(less, {}, sets) == built(full, {})


def test_frozen() -> None:
    """A Spec cannot be changed."""
    spec = Spec.parse({})
    with pytest.raises(ValidationError):
        spec.train.epochs = 2  # type: ignore[misc]


def test_names_of_other_libraries_are_saved_as_ours() -> None:
    """A loss given by another library's name is saved under its own; defaults are written out."""
    saved = Spec.parse({"model": {"rule": "nag", "loss": "log_loss"}}).to_json()["model"]
    assert (saved["rule"], saved["loss"], saved["params"]) == (
        "nag", "logistic", {"eta": 0.5, "implicit": False},
    )  # fmt: skip
    for loss in all_losses().values():
        for name in (loss.name, *loss.aliases):
            assert Spec.parse({"model": {"loss": name}}).loss == loss


def test_read_job_keeps_what_is_written(tmp_path: Path) -> None:
    """A job file's tables are read as TOML says, unicode and all."""
    (tmp_path / "j.toml").write_text('[data]\nlabel = "é"\nbits = 5\n', encoding="utf-8")
    assert read_job(str(tmp_path / "j.toml")) == {"data": {"label": "é", "bits": 5}}


@pytest.mark.parametrize(
    "url, saved",
    [
        ("s3://key:secret@bucket/a?b.parquet", "s3://bucket/a?b.parquet"),
        ("s3://bucket/a#b?c=d", "s3://bucket/a#b?c=d"),
        ("https://user:pw@host/a.parquet?sig=1#x", "https://host/a.parquet"),
        ("http://host/a.parquet?token=1", "http://host/a.parquet"),
        ("HTTPS://user@host/a?t=1", "HTTPS://host/a"),
        ("abfss://container@account/a", "abfss://container@account/a"),
        ("/local/user:pw@host/a?b=c", "/local/user:pw@host/a?b=c"),
        ("none", "none"),
        ("", ""),
    ],
)
def test_what_of_a_url_is_saved(url: str, saved: str) -> None:
    """Userinfo is never saved, nor a query of http(s); in other stores ? and # belong to names."""
    assert without_secrets(url) == saved
    job = {"data": {"shards": [url]}, "model": {"start": url}, "checkpoint": {"url": url}}
    tables = Spec.parse(job).to_json()
    assert tables["data"]["shards"] == [saved]
    assert tables["model"]["start"] == tables["checkpoint"]["url"] == saved
    assert Spec.parse(job).to_json(secrets=True)["data"]["shards"] == [url]


@pytest.mark.parametrize(
    "place, folder, inside",
    [
        ("/a/b", "/a/b", True),
        ("/a/b/", "/a/b", True),
        ("/a/b/c", "/a/b/", True),
        ("/a/bc", "/a/b", False),
        ("/a", "/a/b", False),
        ("/a/x/../b/c", "/a/b", True),
        ("s3://b/k/run", "s3://b/k", True),
        ("s3://b/k/run", "s3://u:p@b/k/", True),
        ("s3://b/kk", "s3://b/k", False),
        ("s3://b/k", "/b/k", False),
        ("/a/b", "file:///a/b", True),
    ],
)
def test_is_inside(place: str, folder: str, inside: bool) -> None:
    """A place is inside a folder when it is the folder or below it, however the two are written."""
    assert is_inside(place, folder) is inside


def test_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is to be typed is relative below the current directory, quoted, and without secrets."""
    monkeypatch.chdir(tmp_path)
    assert typed(f"{tmp_path}/runs/bank") == "runs/bank"
    assert typed(f"{tmp_path}/a b*") == "'a b*'"
    assert typed("/elsewhere/x") == "/elsewhere/x"
    assert typed("s3://key:secret@bucket/a") == "s3://bucket/a"


@pytest.fixture
def vault() -> Any:
    """The store, with three shards."""
    yield filled()
    Vault.store.clear()


def test_no_secret_is_kept_or_said(
    vault: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Secrets in options, URLs and the environment are in no object, output, log or message."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", f"{CANARY}-env")
    (tmp_path / "o.json").write_text(json.dumps({"key": f"{CANARY}-key", "secret": f"{CANARY}-s"}))
    (tmp_path / "p.json").write_text(json.dumps({"secret": f"{CANARY}-p"}))
    secret = f"vault://{CANARY}-user:{CANARY}-pw@host"
    options = ["--checkpoint-storage-options", tmp_path / "p.json"]
    data = ["--storage-options", tmp_path / "o.json"]
    log = ["--log", tmp_path / "log.jsonl"]
    kept, every = f"{secret}/kept", ["--set", "checkpoint.every_rows=16"]
    flags = [*everything(), "--checkpoint", kept, *every, *options, *data, *log]
    said = [
        run("train", f"{secret}/data", *flags),
        run("train", f"{secret}/data", *flags),
        run("train", f"{secret}/nothing", *flags),
        run("train", f"{secret}/data", *flags, "--restart", "--json"),
        run("resume", kept, *options, *data, *log, "--set", "train.epochs=2"),
        run("resume", f"{secret}/nothing", *options, *data),
        run("evaluate", kept, f"{secret}/data", *options, *data),
        run("predict", kept, f"{secret}/data", "--to", f"{secret}/out", *options, *data),
        run("predict", kept, f"{secret}/data", "--to", f"{secret}/out", *options, *data),
        run("inspect", kept, *options, "--json"),
        run("checkpoint", "verify", kept, *options),
        run("train", f"{secret}/data", *flags, "--start", kept, "--eta", "9"),
        run("train", f"{secret}/data", *flags[:-2], "--set", "checkpoint.url=" + secret + "/data"),
    ]
    assert [done.code for done in said] == [0, 2, 2, 0, 0, 4, 0, 0, 2, 0, 0, 2, 2]
    for done in said:
        assert CANARY not in done.out
        assert CANARY not in done.err
    objects = {name: bytes(file.getvalue()) for name, file in Vault.store.items()}
    assert any("/commits/" in name for name in objects)
    for name, content in objects.items():
        assert CANARY.encode() not in content, name
        assert CANARY not in name
    assert CANARY not in (tmp_path / "log.jsonl").read_text()


def test_no_secret_in_repr() -> None:
    """A Spec's repr and str, and a message about it, hold no storage options or userinfo."""
    options = {"storage_options": {"secret": CANARY}}
    data = {**options, "shards": [f"s3://user:{CANARY}@bucket/a"]}
    spec = Spec.parse({"data": data, "checkpoint": options})
    assert CANARY not in repr(spec) + str(spec)
    assert CANARY not in json.dumps(spec.to_json())
    with pytest.raises(UsageError) as caught:
        Spec.parse({"data": {"storage_options": CANARY}})
    assert "data.storage_options" in str(caught.value)
    assert CANARY not in str(caught.value)


def test_a_local_name_is_kept_whole(tmp_path: Path) -> None:
    """A job of a local path with user:pw@ in a name keeps that name: it is no secret."""
    shard = write(tmp_path / "user:pw@host" / "a.parquet", rows(9))
    done = run("train", shard, *everything(), "--checkpoint", tmp_path / "kept", "--json")
    assert done.code == 0
    assert streamomd.load(str(tmp_path / "kept")).spec.data.shards == (str(shard),)
