"""Lists, sizes, durations and fractions as people write them, wherever a job is given."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from running import everything, run, shards, train

import streamomd
from streamomd.config import settings, values
from streamomd.config.spec import Spec
from streamomd.core.errors import UsageError

NAMES = st.lists(st.text(min_size=1, max_size=8).map(str.strip).filter(bool), max_size=5)
LISTS = ("numeric", "hashed", "vectors", "dates", "ignore", "text")


@given(NAMES)
def test_any_list_of_names_can_be_written(names: list[str]) -> None:
    """Names with commas, quotes and blanks are read back from the text that is written for them."""
    assert values.split_list(values.join_list(names)) == names


@pytest.mark.parametrize("key", LISTS)
@given(names=st.lists(st.text("abc, \"'^é", min_size=1, max_size=6), min_size=1, max_size=4))
def test_a_text_of_columns_is_a_list(key: str, names: list[str]) -> None:
    """Every list of columns accepts ``a,b``, and the saved job has the list."""
    listed = Spec.parse({"data": {key: names}})
    assert Spec.parse({"data": {key: values.join_list(names)}}) == listed
    assert isinstance(listed.to_json()["data"][key], list)


def test_a_comma_in_the_name_of_a_shard_is_no_separator() -> None:
    """Files and URLs may contain commas; several are a list."""
    assert Spec.parse({"data": {"shards": "a,b.parquet"}}).data.shards == ("a,b.parquet",)


@pytest.mark.parametrize(
    "text, classes",
    [
        ("0,1", (0, 1)),
        ("no,yes", ("no", "yes")),
        ('"0","1"', ("0", "1")),
        ("false,true", (False, True)),
        ("1.5,2", (1.5, 2)),
    ],
)
def test_a_text_of_classes_is_a_list(text: str, classes: tuple[Any, ...]) -> None:
    """An item is a number or a boolean where TOML reads one, unless it is in quotes."""
    found = Spec.parse({"model": {"classes": text}}).model.classes
    assert found == classes
    assert [type(one) for one in found] == [type(one) for one in classes]


@given(st.integers(1, 65_536))
def test_sizes_of_whole_mebibytes(count: int) -> None:
    """A size in any unit is the same number of MiB."""
    texts = [f"{count}MiB", f"{count} mib", f"{count * 1024}KiB", f"{count * 2**20}B", str(count)]
    if count % 1024 == 0:
        texts.append(f"{count // 1024}GiB")
    for text in texts:
        for table, key in (("train", "prefetch"), ("cluster", "window")):
            spec = Spec.parse({table: {key: text}})
            assert getattr(getattr(spec, table), key) == count
            assert spec.to_json()[table][key] == count


@pytest.mark.parametrize("unit, size", values.SIZES.items())
def test_every_unit_of_size(unit: str, size: int) -> None:
    """Decimal units are powers of 1000, binary ones of 1024, in upper and lower case."""
    assert values.parse_size(f"3{unit}") == values.parse_size(f" 3.0 {unit.upper()} ") == 3 * size
    found = Spec.parse({"data": {"cache_gib": f"3{unit}"}}).data.cache_gib
    assert found == 3 * size / 2**30


@pytest.mark.parametrize("unit, length", values.DURATIONS.items())
def test_every_unit_of_duration(unit: str, length: float) -> None:
    """A duration is saved in seconds; a plain number is in seconds."""
    for text in (f"5{unit}", f"5 {unit}", f"5.0{unit}"):
        assert Spec.parse({"checkpoint": {"every_seconds": text}}).checkpoint.every_seconds == (
            5 * length
        )
    assert Spec.parse({"checkpoint": {"every_seconds": "90"}}).checkpoint.every_seconds == 90.0


@pytest.mark.parametrize(
    "table, key, text, message",
    [
        ("train", "prefetch", "1.5KiB", "expected whole MiB, e.g. 1MiB"),
        ("train", "prefetch", "64MB", "expected whole MiB, e.g. 61MiB"),
        ("train", "prefetch", "64 potatoes", 'expected a size such as "64MiB"'),
        ("train", "prefetch", "-1MiB", "expected a size"),
        ("train", "prefetch", "65537MiB", "expected a whole number from 0 to 65,536"),
        ("train", "prefetch", "9" * 400 + "GiB", "expected a size"),
        ("cluster", "window", "1e3 MiB", "expected a size"),
        ("data", "cache_gib", "many", "expected a size"),
        ("data", "cache_gib", "5m", "expected a size"),
        ("checkpoint", "every_seconds", "5 MiB", 'expected a duration such as "30s"'),
        ("checkpoint", "every_seconds", "soon", "units: ms, s, min, m, h, d"),
        ("data", "holdout", 0.15, "expected a fraction 1/n with n a whole number"),
        ("data", "holdout", "0.3", "e.g. 0.3333 (1 in 3)"),
        ("data", "holdout", 0.9, "e.g. 0.5 (1 in 2)"),
        ("data", "holdout", 5e-324, "expected a fraction"),
        ("data", "holdout", -0.1, "data.holdout = -0.1"),
        ("data", "holdout", 1, "would hold out every row"),
        ("data", "holdout", 1.5, "data.holdout = 1.5"),
    ],
)
def test_values_that_are_refused(table: str, key: str, text: Any, message: str) -> None:
    """A quantity without sense is a usage error with the key, the value and what was expected."""
    with pytest.raises(UsageError) as refused:
        Spec.parse({table: {key: text}})
    assert f"{table}.{key} = " in str(refused.value)
    assert message in str(refused.value)


@given(st.integers(2, 2**32 - 1))
def test_a_fraction_of_held_out_rows_is_one_in_n(count: int) -> None:
    """1/n of the rows, as a number or a text, is n; n itself and 0 are as before."""
    for given_ in (1.0 / count, repr(1.0 / count), count, str(count), float(count)):
        spec = Spec.parse({"data": {"holdout": given_}})
        assert spec.data.holdout == spec.to_json()["data"]["holdout"] == count


@given(st.floats(0.0, 1.0, exclude_min=True, exclude_max=True))
def test_no_other_fraction_is_rounded(fraction: float) -> None:
    """A fraction is accepted only if 1/x is a whole number from 2 up, to nine digits."""
    try:
        count = Spec.parse({"data": {"holdout": fraction}}).data.holdout
    except UsageError:
        ratio = 1.0 / fraction
        assert not math.isclose(ratio, round(min(ratio, 2.0**40)), rel_tol=1e-10) or not (
            2 <= round(ratio) < 2**32
        )
    else:
        assert math.isclose(count * fraction, 1.0, rel_tol=2e-9)


def test_settings_of_dask_accept_durations(monkeypatch: pytest.MonkeyPatch) -> None:
    """``silent-seconds: 5m`` is 300 s; a value without sense is named."""
    import dask

    with dask.config.set({"streamomd.silent-seconds": "5m"}):
        assert settings.seconds("silent") == 300.0
    with (
        dask.config.set({"streamomd.silent-seconds": "soon"}),
        pytest.raises(UsageError, match=r"streamomd\.silent-seconds = 'soon': expected a duration"),
    ):
        settings.seconds("silent")


SAME = {
    "train.prefetch": "64MiB",
    "checkpoint.every_seconds": "5m",
    "data.holdout": 0.1,
    "data.ignore": "i,v",
}
SAVED = {
    ("train", "prefetch"): 64,
    ("checkpoint", "every_seconds"): 300.0,
    ("data", "holdout"): 10,
    ("data", "ignore"): ["i", "v"],
}


def test_toml_python_and_set_are_one_notation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job file, ``sets`` in Python and ``--set`` accept the notation; the saved job has none."""
    monkeypatch.chdir(tmp_path)
    shards(tmp_path / "data")
    tables: dict[str, dict[str, Any]] = {"data": {"shards": "data", "label": "y"}}
    for key, value in SAME.items():
        table, _, name = key.partition(".")
        tables.setdefault(table, {})[name] = value
    text = "\n".join(
        f"[{table}]\n" + "\n".join(f"{name} = {value!r}" for name, value in keys.items())
        for table, keys in tables.items()
    )
    assert tomllib.loads(text) == tables
    (tmp_path / "job.toml").write_text(text)
    train("job.toml", "--checkpoint", "of-toml")
    words = [word for key, value in SAME.items() for word in ("--set", f"{key}={value}")]
    train("data", "--label", "y", "--checkpoint", "of-sets", *words)
    streamomd.train("data", label="y", checkpoint="of-python", sets=SAME, quiet=True)
    for name in ("of-toml", "of-sets", "of-python"):
        saved = streamomd.load(name).spec.to_json()
        assert {place: saved[place[0]][place[1]] for place in SAVED} == SAVED


def test_lists_and_fractions_of_flags_are_those_of_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--numeric n,k --holdout 0.1`` is ``train(numeric="n,k", holdout=0.1)``, and the list."""
    monkeypatch.chdir(tmp_path)
    shards(tmp_path / "data")
    flags: dict[str, Any] = {"label": "y", "holdout": 0.1, "quiet": True}
    first = streamomd.train("data", numeric="n,k", checkpoint="none", **flags)
    other = streamomd.train("data", numeric=["n", "k"], checkpoint="none", **flags)
    words = ["--label", "y", "--numeric", "n, k", "--holdout", "0.1", "--checkpoint", "none"]
    done = train("data", *words)
    assert first.result()["state_sha256"] == other.result()["state_sha256"]
    assert done["state_sha256"] == first.result()["state_sha256"]
    assert done["holdout"]["rows"] > 0


def test_lists_of_other_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``--by a,b`` is ``--by a --by b``; ``--keep``, ``--null`` and ``--type`` are lists, too."""
    monkeypatch.chdir(tmp_path)
    shards(tmp_path / "data")
    train("data", *everything(), "--checkpoint", "run")
    one = run("evaluate", "run", "data", "--by", "h,c", "--json").result["slices"]
    assert list(one) == ["h", "c"]
    assert (
        run("evaluate", "run", "data", "--by", "h", "--by", "c", "--json").result["slices"] == one
    )
    assert run("predict", "run", "data", "-o", "out", "--keep", "h, n").code == 0
    (tmp_path / "rows.csv").write_text("a;b\n1;2\nNA;x,y\n?;3\n")
    nulls = ["--null", 'NA,?,"x,y"', "--type", "a=double,b=double", "--delimiter", ";"]
    done = run("convert", "rows.csv", "--from", "csv", "-o", "csv", *nulls, "--json")
    assert done.result["rows"] == 3
