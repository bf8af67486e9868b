"""The public suites of Parquet and Arrow through plan, train and convert, a worker for many files.

As a program: ``python tests/support/public_suites.py`` reads paths from stdin, one a line, and
prints a JSON object for each: what each command ended with, whether rows are pyarrow's, and the
peak of memory. A file that ends it is the last one without an answer.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import select
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

SUITES = Path(__file__).parents[2].parent / "shared" / "suites"
SECONDS, MOST_BYTES = 20.0, 1 << 30
CODES = {0, 2}
FOLDERS = (
    "parquet-testing/data", "parquet-testing/bad_data", "arrow-testing/data/parquet",
    "arrow-testing/data/arrow-ipc-file", "arrow-testing/data/arrow-ipc-stream",
    "arrow-testing/data/csv",
)  # fmt: skip
NO_DATA = (".md", ".txt", ".json", ".proto", ".py", ".yaml", ".bin", ".gitattributes", ".json.gz")


def files() -> list[str]:
    """The data files of the suites, relative to them."""
    found = (one for folder in FOLDERS for one in sorted((SUITES / folder).rglob("*")))
    paths = (one for one in found if one.is_file() and not one.name.endswith(NO_DATA))
    return [str(one.relative_to(SUITES)) for one in paths]


def text_format(path: str) -> str:
    """What ``convert --from`` needs to know of a file; "": it is one of shards."""
    if "arrow-ipc-stream" in path and not path.endswith(".arrow_file"):
        return "arrows"
    if "/csv/" in path:
        return "csv"
    return ""


def peak() -> int:
    """Most bytes in memory since ``forget_peak``."""
    return 1024 * int(re.findall(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[0])


def forget_peak() -> None:
    """Begin to measure again."""
    Path("/proc/self/clear_refs").write_text("5")


def ended(words: list[Any], name: str) -> str:
    """What a command ended with: "ok", "error" (of streamomd's, naming the file) or what is
    wrong."""
    from running import run

    began = time.monotonic()
    try:
        done = run(*words)
    except Exception:
        return "traceback: " + traceback.format_exc().strip().rsplit("\n", 1)[-1][:300]
    if (took := time.monotonic() - began) > SECONDS:
        return f"took {took:.0f} s"
    if done.code not in CODES:
        return f"exit {done.code}: {done.err[-300:]}"
    # What is wrong with the columns that were asked for is said of the data set.
    named = any(one in done.err for one in (name, "first shard", "label", "column"))
    return "ok" if done.code == 0 else "error" if named else f"names no file: {done.err[-300:]}"


def expected(path: str, kind: str) -> Any:
    """pyarrow's rows; None where it refuses the file, or knows no such text."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from streamomd.core.errors import DataError
    from streamomd.sources.text.arrow_source import plain, plain_schema

    try:
        if kind == "arrows":
            with pa.ipc.open_stream(path) as stream:
                table = stream.read_all()
        elif kind == "csv":
            return None
        elif Path(path).read_bytes()[:4] == b"PAR1":
            table = pq.ParquetFile(path, arrow_extensions_enabled=False).read()
        else:
            table = pa.ipc.open_file(path).read_all()
        table.validate(full=True)
        schema = plain_schema(table.schema, path)
        batches = [plain(batch, schema) for batch in table.to_batches()]
        table = pa.Table.from_batches(batches, schema)
    except (pa.ArrowException, OSError, ValueError, LookupError, DataError):
        return None
    return table


def same_rows(one: Any, other: Any) -> bool:
    """Whether two tables have the same values; NaN is NaN."""
    try:
        return values_of(one) == values_of(other)
    except (ValueError, OverflowError):  # times that Python does not have
        return bool(one.cast(other.schema, safe=False).equals(other))


def values_of(table: Any) -> list[list[Any]]:
    """The values of each column, comparable: NaN is text."""

    def same(value: Any) -> Any:
        if isinstance(value, float) and math.isnan(value):
            return "nan"
        if isinstance(value, list | tuple):
            return [same(one) for one in value]
        return {k: same(v) for k, v in value.items()} if isinstance(value, dict) else value

    return [[same(value) for value in column.to_pylist()] for column in table.columns]


def label_of(path: str) -> str:
    """The last column with numbers, else the last one."""
    import pyarrow as pa

    from streamomd.core.errors import StreamomdError
    from streamomd.sources.find import find

    try:
        schema = find(path).shards[0].schema
    except StreamomdError:
        return "y"
    numbers = [one.name for one in schema if pa.types.is_integer(one.type)]
    return str((numbers or schema.names or ["y"])[-1])


def judge(path: str) -> dict[str, Any]:
    """What came of a file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    whole, name = str(SUITES / path), Path(path).name
    forget_peak()
    kind, found = text_format(path), {}
    with tempfile.TemporaryDirectory() as folder:
        out, copy = Path(folder) / "out", whole
        words = ["convert", whole, "--to", out, *(["--from", kind] if kind else [])]
        found["convert"] = ended(words, name)
        if kind:  # plan and train know text by its ending
            copy = str(Path(folder) / f"{name}.{kind}")
            Path(copy).symlink_to(whole)
        how = ["--label", label_of(whole) if not kind else "y", "--set", "model.rule='nag'"]
        found["plan"] = ended(["plan", copy, *how], name)
        found["train"] = ended(["train", copy, *how, "--checkpoint", "none"], name)
        found["peak"] = peak()
        table = expected(whole, kind)
        if found["convert"] == "ok" and table is not None:
            with contextlib.suppress(pa.ArrowNotImplementedError):
                read = pa.concat_tables([pq.read_table(one) for one in sorted(out.iterdir())])
                # Fields of structs are columns, too.
                if not same_rows(read.select(table.schema.names), table):
                    found["values"] = "other values than pyarrow's"
        elif found["convert"] == "error" and table is not None:
            found["refused"] = True
    found["after"] = peak()
    return found


def main() -> None:
    """Answer for each path of stdin."""
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            found = judge(line.strip())
        except Exception:
            found = {"judge": traceback.format_exc()[-600:]}
        print(json.dumps(found), flush=True)


class Worker:
    """A process that judges files, and is started again when a file ends it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def ask(self, path: str) -> dict[str, Any]:
        """What came of a file; ``died``: the process ended or took too long."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True,
            )  # fmt: skip
            assert self._process.stdout
            self._process.stdout.readline()
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{path}\n")
        self._process.stdin.flush()
        began = time.monotonic()
        if select.select([self._process.stdout], [], [], 3 * SECONDS)[0]:
            if line := self._process.stdout.readline():
                found = json.loads(line)
                if found.get("after", 0) > MOST_BYTES // 2:  # pyarrow's memory is none of the next
                    self.close()
                return {**found, "seconds": time.monotonic() - began}
            code = self.close()
            return {"died": f"the process ended with {code}"}
        self.close()
        return {"died": f"more than {3 * SECONDS:g} s"}

    def close(self) -> int:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.kill()
        process.communicate()
        return process.returncode


def violations(paths: Iterable[str]) -> Iterator[str]:
    """Lines about files of which something is wrong."""
    worker = Worker()
    try:
        for path in paths:
            found = worker.ask(path)
            wrong = {
                key: value for key, value in found.items()
                if key in ("died", "judge", "values") or (
                    key in ("plan", "train", "convert") and value not in ("ok", "error")
                )
            }  # fmt: skip
            if found.get("peak", 0) > MOST_BYTES:
                wrong["peak"] = found["peak"]
            if wrong:
                yield f"{path}: {wrong}"
    finally:
        worker.close()


if __name__ == "__main__":
    main()
