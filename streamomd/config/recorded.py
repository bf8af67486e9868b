"""Settings of a machine that a manifest records: they are printed, and never obeyed.

The author of a checkpoint chose its model, its plan and its data. The person who runs a command
chooses the cluster that it connects to and the local folder that it writes to: on the command line,
in the environment or in a configuration file. ``apart`` separates the two where a job is read from
a manifest, so that no command can obey the author's cluster or folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from pydantic import ValidationError

from streamomd.config.data_table import Data
from streamomd.config.flags import assign
from streamomd.config.model_table import FALLBACK
from streamomd.config.run_tables import Cluster
from streamomd.config.spec import Spec
from streamomd.core.errors import UsageError
from streamomd.core.urls import shown, typed

CACHE = ("cache", "cache_gib")
"""Keys of ``data`` that are settings of a machine, as all keys of ``cluster`` are."""
THREADS = "threads"
"""The key of ``train`` that is a setting of a machine."""


@dataclass(frozen=True)
class Recorded:
    """What the processes that wrote a run used. cluster, cache: as the job's keys."""

    cluster: Cluster = field(default_factory=Cluster)
    cache: str = ""

    @classmethod
    def of(cls, job: Mapping[str, Any]) -> Self:
        """What a manifest's job records; a table with invalid values records nothing."""
        try:
            cluster = Cluster.model_validate(job.get("cluster", {}))
            return cls(cluster, Data.model_validate({"cache": job["data"].get("cache", "")}).cache)
        except (ValidationError, UsageError):
            return cls()

    def used(self, spec: Spec, address: str) -> Self:
        """The same after a job ran on the cluster of a client, which no key of the job names."""
        return replace(self, cluster=spec.cluster.model_copy(update={"scheduler": address}))

    def hints(self, url: str, *, cluster: bool, cache: bool) -> list[str]:
        """A line for each setting that the run used, with the flags to use it again.

        cluster, cache: which of them were not given on this command line.
        """
        lines, command = [], f"streamomd resume {typed(url)}"
        if cluster and self.cluster.scheduler:
            flags = f"--scheduler {typed(self.cluster.scheduler)}"
            for key, default in (("learner", Cluster().learner), ("decode", Cluster().decode)):
                if (value := getattr(self.cluster, key)) != default:
                    flags += f" --set cluster.{key}={value}"
            lines.append(
                f"this run used the cluster {shown(self.cluster.scheduler)}; a checkpoint does not "
                f"choose the cluster. To use it again: {command} {flags}"
            )
        if cache and self.cache:
            lines.append(
                f"this run cached decoded rows in {shown(self.cache)}; a checkpoint does not "
                f"choose the folder. To use it again: {command} --cache {typed(self.cache)}"
            )
        return lines

    def add_to(self, job: dict[str, Any]) -> dict[str, Any]:
        """The job for a manifest; a cluster or cache that it does not name stays as recorded."""
        if self.cluster.scheduler and not job["cluster"]["scheduler"]:
            job = {**job, "cluster": self.cluster.model_dump(mode="json")}
        if self.cache and not job["data"]["cache"]:
            job = {**job, "data": {**job["data"], "cache": self.cache}}
        return job


def split_recorded(job: Mapping[str, Any], url: str) -> tuple[dict[str, Any], Recorded]:
    """The tables of a manifest's job that are obeyed, and the settings that it records.

    url: where the manifest was read from; it replaces the URL that the manifest records.
    """
    # Jobs that do not name them were saved when directories were no columns.
    data = {"partitions": "none", **job["data"]}
    data = {key: value for key, value in data.items() if key not in CACHE}
    tables = {name: table for name, table in job.items() if name != "cluster"}
    if "train" in tables:
        train = tables["train"]
        tables["train"] = {key: value for key, value in train.items() if key != THREADS}
    data = {"as_files": True, **data}  # what jobs did before they had the key
    checkpoint = {**job["checkpoint"], "url": url}
    model = {"rule": FALLBACK, **job["model"]}  # the default when jobs may have left it out
    return {**tables, "data": data, "model": model, "checkpoint": checkpoint}, Recorded.of(job)


def with_settings(spec: Spec, given: Mapping[str, Any]) -> Spec:
    """The job with settings of this machine, by dotted key. Raises UsageError."""
    tables = spec.to_json(secrets=True)
    for key, value in given.items():
        assign(tables, key, value)
    return Spec.parse(tables)


def settings(spec: Spec) -> dict[str, Any]:
    """The settings of a machine in a job, by dotted key: they are sent with its task."""
    found = {f"cluster.{key}": value for key, value in spec.cluster.model_dump().items()}
    found |= {f"data.{key}": getattr(spec.data, key) for key in CACHE}
    return {**found, f"train.{THREADS}": spec.train.threads}
