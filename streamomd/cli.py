"""The command line: parse, call, print."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import click

from streamomd import show
from streamomd.errors import StreamomdError, UsageError

CODES = """\b
Exit codes: 0 done, 1 unexpected or storage out of reach, 2 bad usage or bad input,
3 resume refused (data or job changed), 4 no usable commit, 5 another writer took over,
130/143 stopped by a signal, after a commit."""

JOB_FLAGS = (
    ("--label", "Column to predict."),
    ("--weight", "Column of importance weights."),
    ("--numeric", "Columns a,b,c: one coordinate each."),
    ("--hashed", "Columns a,b,c: one coordinate a value, hashed."),
    ("--rule", "Learner; no name: a guide; see also: streamomd list rules.  [nag]"),
    ("--loss", "Loss; see: streamomd list losses.  [the rule's: logistic]"),
    ("--mode", "exact or averaged; see: streamomd list modes.  [exact]"),
    ("--dtype", "float64 or float32 slots.  [float64]"),
    ("--checkpoint", "URL to keep the run in, or none.  [runs/NAME-DATE-TIME]"),
    ("--start", "Checkpoint URL whose state goes on with these rows."),
    ("--scheduler", "Address of a Dask scheduler, whose workers may decode."),
)
JOB_NUMBERS = (
    ("--eta", float, "Step size.  [the rule's]"),
    ("--epochs", int, "Times to read the rows.  [1]"),
    ("--bits", int, "2^BITS coordinates for hashed values.  [18]"),
)
OPTIONS_FILE = "Storage options for the {}, a TOML or JSON file."


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="streamomd")
def main() -> None:
    """Linear models on more rows than memory: exact, checkpointed, resumable to the bit.

    \b
      streamomd train data/ --label y               learn from shards, watch the loss
      streamomd resume runs/bank                    go on after a kill, to the same bits
      streamomd predict runs/bank new/ --to out/    write predictions
    """


def guarded(function: Callable[..., tuple[Any, str]]) -> Callable[..., None]:
    """A command that returns its result and text: printed, or an error in one line and its code."""

    @click.option("--json", "as_json", is_flag=True, help="Last line of stdout: one JSON object.")
    @functools.wraps(function)
    def run(*, as_json: bool, **given: Any) -> None:
        try:
            result, text = function(**given)
            _print(json.dumps(show.as_json(result), allow_nan=False) if as_json else text)
        except StreamomdError as error:
            click.echo(f"streamomd: {error}", err=True)
            sys.exit(error.exit_code)

    return run


def _print(text: str) -> None:
    try:
        click.echo(text)
    except BrokenPipeError:  # the reader of a pipe has left: nobody to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _job_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for flag, text in reversed(JOB_FLAGS):
        bare: dict[str, Any] = {"flag_value": "", "callback": _named} if flag == "--rule" else {}
        function = click.option(flag, help=text, metavar="TEXT", is_flag=False, **bare)(function)
    for flag, kind, text in reversed(JOB_NUMBERS):
        function = click.option(flag, type=kind, help=text)(function)
    return function


def _named(_: click.Context, __: click.Parameter, rule: str | None) -> str | None:
    if rule == "":
        raise click.UsageError(show.guide())
    return rule


def _options_file(flag: str, of: str) -> Callable[..., Any]:
    return click.option(flag, metavar="FILE", help=OPTIONS_FILE.format(of))


data_options = _options_file("--storage-options", "shards")
checkpoint_options = _options_file("--checkpoint-storage-options", "checkpoint")
set_option = click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Any job key.")
log_option = click.option("--log", metavar="FILE", help="Append JSON lines of progress.")
url = click.argument("url")
shards = click.argument("shards", nargs=-1, required=True)


@main.command(epilog=CODES)
@click.argument("what", nargs=-1, required=True, metavar="JOB.toml | SHARDS…")
@_job_options
@click.option("--restart", is_flag=True, help="Begin anew in a checkpoint that holds a run.")
@data_options
@checkpoint_options
@set_option
@log_option
@guarded
def train(what: tuple[str, ...], **given: Any) -> tuple[Any, str]:
    """Learn from shards, row by row, each predicted before it is learned.

    \b
      streamomd train pipelines/quickstart.toml
      streamomd train data/*.parquet --label y --rule nag --eta 0.5
      streamomd train s3://bucket/rows/ --label y --checkpoint s3://bucket/run --epochs 3
    """
    jobs = [name for name in what if name.endswith(".toml")]
    job = jobs[0] if len(jobs) == 1 else None
    given["shards"] = [name for name in what if name != job]
    for columns in ("numeric", "hashed"):
        given[columns] = _columns(given[columns])
    import streamomd

    model = streamomd.train(job, **_read_options(given))
    result = model.result()
    return result, show.trained(result, model.spec.data.shards)


@main.command(epilog=CODES)
@url
@click.option("--epochs", type=int, help="Read the rows more often than was planned.")
@click.option("--accept-new-shards", is_flag=True, help="Shards were added after the last one.")
@click.option("--scheduler", metavar="ADDRESS", help="Of a Dask cluster, another or the same.")
@data_options
@checkpoint_options
@set_option
@log_option
@guarded
def resume(url: str, epochs: int | None, scheduler: str | None, **given: Any) -> tuple[Any, str]:
    """Go on with a run from its last commit; a finished one prints its result again.

    \b
      streamomd resume runs/bank
      streamomd resume runs/bank --epochs 5
    """
    import streamomd

    given = _read_options(given)
    given["sets"] |= {"train.epochs": epochs} if epochs else {}
    given["sets"] |= {"cluster.scheduler": scheduler} if scheduler is not None else {}
    model = streamomd.resume(url, **given)
    result = model.result()
    return result, show.trained(result, model.spec.data.shards)


@main.command(epilog=CODES)
@url
@shards
@data_options
@checkpoint_options
@guarded
def evaluate(
    url: str, shards: tuple[str, ...], storage_options: str, checkpoint_storage_options: str
) -> tuple[Any, str]:
    """Loss and error of a model on labelled shards; nothing is learned."""
    model = _load(url, checkpoint_storage_options)
    result = model.evaluate(list(shards), storage_options=_options(storage_options))
    return result, show.figures(result)


@main.command(epilog=CODES)
@url
@shards
@click.option("--to", required=True, metavar="DIR", help="Directory or URL for the predictions.")
@click.option("--keep", metavar="A,B", help="Columns to copy beside the predictions.")
@click.option("--overwrite", is_flag=True, help="Replace predictions that are there.")
@data_options
@checkpoint_options
@guarded
def predict(
    url: str,
    shards: tuple[str, ...],
    to: str,
    keep: str | None,
    overwrite: bool,
    storage_options: str,
    checkpoint_storage_options: str,
) -> tuple[Any, str]:
    """Write a Parquet file of predictions for each shard.

    Columns: row, prediction, score, probability (logistic), and those kept.
    """
    written = _load(url, checkpoint_storage_options).predict(
        list(shards),
        to,
        keep=_columns(keep) or (),
        overwrite=overwrite,
        storage_options=_options(storage_options),
    )
    return {"files": written}, "\n".join(written)


@main.command(epilog=CODES)
@url
@click.option("--top", default=20, show_default=True, help="How many coordinates.")
@checkpoint_options
@guarded
def inspect(url: str, top: int, checkpoint_storage_options: str) -> tuple[Any, str]:
    """The heaviest features of a model by name, with their weights and slots."""
    model = _load(url, checkpoint_storage_options)
    result = {**model.summary(), "top": model.inspect(top)}
    return result, show.inspected(result)


@main.command(epilog=CODES)
@url
@shards
@click.option(
    "--comparator",
    default="best",
    metavar="best|FILE",
    help="Fixed weights to compare with: the best there are (L-BFGS over the shards), or a .npy or "
    "Parquet file of them, in the order of coordinates.  [best]",
)
@data_options
@checkpoint_options
@guarded
def certify(
    url: str,
    shards: tuple[str, ...],
    comparator: str,
    storage_options: str,
    checkpoint_storage_options: str,
) -> tuple[Any, str]:
    """Regret or mistakes of a run beside what its paper proves, over the shards it learned.

    \b
      streamomd certify runs/bank data/
      streamomd certify runs/bank data/ --comparator weights.npy --json
    """
    from streamomd.certify import certify as certify_run

    model = _load(url, checkpoint_storage_options)
    learners = certify_run(
        model,
        list(shards),
        comparator=comparator,
        storage_options=_options(storage_options),
        checkpoint_storage_options=_options(checkpoint_storage_options),
    )
    told = model.spec.model
    result = {
        "rule": told.rule,
        "loss": told.loss,
        "params": told.params,
        "comparator": comparator,
        "checkpoint": {"url": model.url, "sequence": model.sequence},
        "learners": learners,
    }
    return result, show.certified(result)


@main.command(epilog=CODES)
@click.argument("sources", nargs=-1, required=True)
@click.option(
    "--from", "source_format", required=True, type=click.Choice(["csv", "svmlight", "vw"])
)
@click.option("--to", required=True, metavar="DIR", help="Directory or URL for the shards.")
@click.option("--shards", type=int, help="How many shards to write (reads the source twice).")
@click.option("--rows-per-shard", type=int, help="Rows of a shard.  [1,000,000]")
@click.option("--shuffle", type=int, metavar="SEED", help="Permute all rows, by this seed.")
@click.option("--overwrite", is_flag=True, help="Replace shards that are there.")
@click.option("--no-header", is_flag=True, help="csv: the first line holds values.")
@click.option("--delimiter", help="csv: what stands between values.  [found in the first line]")
@click.option("--no-quotes", is_flag=True, help="csv: quotes are part of the values.")
@click.option("--type", "types", multiple=True, metavar="COL=TYPE", help="csv: e.g. zip=string.")
@click.option("--null", "null_values", multiple=True, help="csv: a text that means missing.")
@click.option("--one-based/--zero-based", default=None, help="svmlight: the first index is 1 or 0.")
@click.option("--size", type=int, help="svmlight: coordinates in all.  [largest index + 1]")
@click.option("--bits", type=int, help="vw: 2^BITS coordinates.  [18]")
@click.option("--hash-seed", type=int, help="vw: seed of the hash.  [0]")
@data_options
@guarded
def convert(
    sources: tuple[str, ...],
    no_header: bool,
    no_quotes: bool,
    types: tuple[str, ...],
    one_based: bool | None,
    **given: Any,
) -> tuple[Any, str]:
    """Text to Parquet shards, streaming: a file larger than memory converts.

    \b
      streamomd convert covtype.csv.gz --from csv --to covertype/ --rows-per-shard 36314
      streamomd convert rows.svm --from svmlight --to rows/ --shuffle 1
    """
    from streamomd.report import copying
    from streamomd.shards.convert import convert

    given = _read_options(given)
    given |= {"header": False} if no_header else {}
    given |= {"quotes": False} if no_quotes else {}
    given |= {"types": _pairs(types)} if types else {}
    given |= {"zero_based": not one_based} if one_based is not None else {}
    wanted = {key: value for key, value in given.items() if value not in (None, ())}
    done = convert(sources, progress=copying(), **wanted)
    return asdict(done), show.converted(asdict(done))


@main.group()
def checkpoint() -> None:
    """Look at what a checkpoint holds."""


@checkpoint.command("list", epilog=CODES)
@url
@checkpoint_options
@guarded
def list_commits(url: str, checkpoint_storage_options: str) -> tuple[Any, str]:
    """Every commit: sequence, rows, when, and whether it can be used."""
    return _commits(url, checkpoint_storage_options, deep=False)


@checkpoint.command("verify", epilog=CODES)
@url
@checkpoint_options
@guarded
def verify_commits(url: str, checkpoint_storage_options: str) -> tuple[Any, str]:
    """Read every byte of every commit and compare it with its hash."""
    return _commits(url, checkpoint_storage_options, deep=True)


@main.command("list", epilog=CODES)
@click.argument("kind", type=click.Choice(["rules", "losses", "formats", "modes"]))
@guarded
def list_command(kind: str) -> tuple[Any, str]:
    """What there is to choose from."""
    rows = show.LISTS[kind]()
    return {kind: rows}, show.listed(rows)


def _pairs(texts: tuple[str, ...]) -> dict[str, str]:
    for text in texts:
        if "=" not in text:
            raise UsageError(f"--type {text}: expected COLUMN=TYPE, e.g. zip=string")
    return dict(text.rsplit("=", 1) for text in texts)


def _columns(text: str | None) -> list[str] | None:
    return [name.strip() for name in text.split(",") if name.strip()] if text else None


def _commits(url: str, checkpoint_storage_options: str, *, deep: bool) -> tuple[Any, str]:
    from streamomd.checkpoint import commits, open_store
    from streamomd.errors import CorruptionError

    found = commits(open_store(url, _options(checkpoint_storage_options)), deep=deep)
    if deep and not all(one["ok"] for one in found):
        raise CorruptionError(show.table(found))
    return {"commits": found}, show.table(found)


def _options(path: str | None) -> dict[str, Any] | None:
    from streamomd.job import read_options

    return read_options(path)


def _read_options(given: dict[str, Any]) -> dict[str, Any]:
    """Flags as the Python functions take them: option files read, --set parsed."""
    from streamomd.job import parse_sets

    files = {key: _options(given[key]) for key in given if key.endswith("storage_options")}
    sets = {"sets": parse_sets(given["sets"])} if "sets" in given else {}
    return {**given, **files, **sets}


def _load(url: str, checkpoint_storage_options: str | None) -> Any:
    import streamomd

    return streamomd.load(url, storage_options=_options(checkpoint_storage_options))
