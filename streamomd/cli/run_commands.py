"""Commands that learn: train, resume."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import click

from streamomd.cli import formatting
from streamomd.cli.options import (
    CODES,
    begin_options,
    checkpoint_options,
    data_options,
    described,
    guarded,
    log_option,
    main,
    parsed,
    runs,
    set_option,
    url,
)
from streamomd.cli.sweep_command import resumed
from streamomd.core.errors import SweepError
from streamomd.core.profiling import Profile, profiled

track_option = click.option(
    "--track",
    multiple=True,
    metavar="TO",
    help="Hand figures to a tracker: mlflow:URI or tensorboard:DIR.",
)


profile_option = click.option(
    "--profile", is_flag=True, help="Tell where the processors' time went, by the row."
)


@main.command(epilog=CODES)
@begin_options
@log_option
@track_option
@profile_option
@guarded
def train(
    what: tuple[str, ...], track: tuple[str, ...], profile: bool, **given: Any
) -> tuple[Any, str]:
    """Learn from shards, row by row, each predicted before it is learned.

    \b
      streamomd train pipelines/quickstart.toml
      streamomd train data/*.parquet --label y --rule nag --eta 0.5
      streamomd train s3://bucket/rows/ --label y --checkpoint s3://bucket/run --epochs 3
      streamomd train data/ --label y --rule adagrad --start weights.parquet
      streamomd train data/ --label y --track tensorboard:logs/bank
      streamomd train data/ --label y --checkpoint none --profile
    """
    job, given = described(what, given)
    learner = runs()
    from streamomd.integrations.trackers import tracker

    with profiled() if profile else nullcontext() as told:
        model = learner.train(job, callbacks=[tracker(one) for one in track], **parsed(given))
    return _trained(model, told)


@main.command(epilog=CODES)
@url
@click.option("--epochs", type=int, help="Read the rows more often than was planned.")
@click.option("--on-bad-row", metavar="skip", help="Skip bad rows: only for a run that diverged.")
@click.option("--accept-new-shards", is_flag=True, help="Shards were added after the last one.")
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Dask scheduler to use; never taken from the checkpoint.  [none]",
)
@click.option(
    "--cache", metavar="DIR", help="Local folder of decoded rows; never taken from the checkpoint."
)
@data_options
@checkpoint_options
@set_option
@log_option
@track_option
@profile_option
@guarded
def resume(
    url: str,
    epochs: int | None,
    on_bad_row: str | None,
    scheduler: str | None,
    cache: str | None,
    track: tuple[str, ...],
    profile: bool,
    **given: Any,
) -> tuple[Any, str]:
    """Go on with a run from its last commit; a finished one prints its result again.

    \b
      streamomd resume runs/bank
      streamomd resume runs/bank --epochs 5
      streamomd resume s3://bucket/run --scheduler tcp://10.0.0.5:8786

    A sweep resumes all of its learners. A checkpoint chooses no cluster, cache, tracker or log:
    without --scheduler, exact mode learns in this process, averaged mode on a cluster of this
    machine's cores, sharded mode in this process if the state fits in memory. The URLs of the
    shards come from the checkpoint: each is printed before it is opened, and refused outside the
    prefixes of STREAMOMD_ALLOWED_URLS, if that is set.
    """
    learner = runs()
    from streamomd.integrations.trackers import tracker

    given = parsed(given)
    given["sets"] |= {"train.epochs": epochs} if epochs else {}
    given["sets"] |= {"data.on_bad_row": on_bad_row} if on_bad_row else {}
    given["sets"] |= {"cluster.scheduler": scheduler} if scheduler is not None else {}
    given["sets"] |= {"data.cache": cache} if cache is not None else {}
    try:
        callbacks = [tracker(one) for one in track]
        with profiled() if profile else nullcontext() as told:
            model = learner.resume(url, callbacks=callbacks, **given)
    except SweepError:
        return resumed(url, **given)
    return _trained(model, told)


def _trained(model: Any, profile: Profile | None) -> tuple[Any, str]:
    """The result of a run, and of its profile if one was kept."""
    result = model.result()
    text = formatting.trained(result, model.spec.data.shards)
    if profile is None:
        return result, text
    return {**result, "profile": profile.to_json()}, f"{text}\n\n{profile}"
