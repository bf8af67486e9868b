"""Commands that train: train, resume."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import click

from streamomd.cli import formatting
from streamomd.cli.job_flags import LIST, JobCommand, number_or_text
from streamomd.cli.options import (
    CODES,
    checkpoint_options,
    cluster_option,
    data_options,
    guarded,
    import_runs,
    job_and_shards,
    joined,
    log_option,
    main,
    metrics_options,
    python_arguments,
    run_cluster_options,
    run_options,
    set_option,
    set_scheduler,
    url,
    verbose_option,
)
from streamomd.cli.sweep_command import resume_sweep_command
from streamomd.core.errors import SweepError
from streamomd.core.profiling import Profile, profiled

track_option = click.option(
    "--track",
    multiple=True,
    type=LIST,
    metavar="TRACKER",
    help="Experiment tracker to log metrics to: mlflow:URI or tensorboard:DIR. May be repeated.",
)
profile_option = click.option("--profile", is_flag=True, help="Print a CPU profile (ns per row).")


@main.command(cls=JobCommand, epilog=CODES)
@run_options
@cluster_option
@log_option
@metrics_options
@track_option
@profile_option
@verbose_option
@guarded
def train(
    what: tuple[str, ...], track: tuple[list[str], ...], profile: bool, **given: Any
) -> tuple[Any, str]:
    """Train a model on data files (shards); each row is predicted before it is learned.

    \b
      streamomd train pipelines/quickstart.toml
      streamomd train data/*.parquet --label y --rule nag --eta 0.5
      streamomd train s3://bucket/rows/ --label y --checkpoint s3://bucket/run --epochs 3
      streamomd train data/ --label y --rule adagrad --start weights.parquet
      streamomd train data/ --label y --track tensorboard:logs/bank
      streamomd train data/ --label y --checkpoint none --profile
    """
    job, given = job_and_shards(what, given)
    run_functions = import_runs()
    from streamomd.integrations.trackers import tracker

    callbacks = [tracker(one) for one in joined(track)]
    with profiled() if profile else nullcontext() as measured:
        model = run_functions.train(job, callbacks=callbacks, **python_arguments(given))
    return _trained(model, measured)


@main.command(epilog=CODES)
@url
@click.option(
    "--epochs", type=number_or_text, metavar="N",
    help="Number of passes over the rows, more than before.",
)  # fmt: skip
@click.option(
    "--on-bad-row", metavar="skip",
    help="What to do with a bad row from here on; only for a run that diverged.",
)  # fmt: skip
@click.option(
    "--accept-new-shards", is_flag=True, help="Also learn shards that were added after the last."
)
@run_cluster_options
@click.option(
    "--cache",
    metavar="DIR",
    help="Local folder for decoded rows; never taken from the checkpoint.  [none]",
)
@data_options
@checkpoint_options
@set_option
@log_option
@metrics_options
@track_option
@profile_option
@verbose_option
@guarded
def resume(
    url: str,
    epochs: Any,
    on_bad_row: str | None,
    scheduler: str | None,
    cache: str | None,
    track: tuple[list[str], ...],
    profile: bool,
    **given: Any,
) -> tuple[Any, str]:
    """Continue a run from its last commit; a finished run prints its result again.

    \b
      streamomd resume runs/bank
      streamomd resume runs/bank --epochs 5
      streamomd resume s3://bucket/run --scheduler tcp://10.0.0.5:8786

    A sweep resumes all its learners, and a backtest its periods. A checkpoint does not choose a
    cluster, cache, tracker or log. Without --scheduler, exact mode runs in this process, averaged
    mode on a cluster of this machine's cores, sharded mode in this process if the state fits in
    memory. The URLs of the shards come from the checkpoint: each is printed before it is opened,
    and refused unless it starts with one of STREAMOMD_ALLOWED_URLS, if that is set.
    """
    import_runs()
    from streamomd.integrations.trackers import tracker
    from streamomd.runs.resume import resume as resume_run

    given = python_arguments(given)
    given["sets"] |= {"train.epochs": epochs} if epochs is not None else {}
    given["sets"] |= {"data.on_bad_row": on_bad_row} if on_bad_row else {}
    given["sets"] = set_scheduler(given["sets"], scheduler)
    given["sets"] |= {"data.cache": cache} if cache is not None else {}
    try:
        callbacks = [tracker(one) for one in joined(track)]
        with profiled() if profile else nullcontext() as measured:
            model = resume_run(url, callbacks=callbacks, **given)
    except SweepError:
        return resume_sweep_command(url, **given)
    return _trained(model, measured)


def _trained(model: Any, profile: Profile | None) -> tuple[Any, str]:
    """The result of a run, with its profile if one was measured."""
    result = model.result()
    if "backtest" in result:
        return result["backtest"], formatting.format_backtest(result["backtest"])
    from streamomd.analysis.report.verdict import printed_line
    from streamomd.training.model_figures import recency_note, stream_note

    text = formatting.format_run(result, model.spec.data.shards)
    more = (printed_line(model, result), stream_note(model), recency_note(model))
    text = "\n".join(filter(None, (text, *more)))
    if profile is None:
        return result, text
    return {**result, "profile": profile.to_json()}, f"{text}\n\n{profile}"
