"""MLflow models: save, log and load a scorer as MLflow's own flavors do, without pickle.

    import streamomd.integrations.mlflow as streamomd_mlflow

    with mlflow.start_run():
        streamomd_mlflow.log_model(streamomd.load("runs/bank"), name="bank")
    mlflow.pyfunc.load_model("models:/…").predict(frame)

The model is one file that ``Scorer.load`` reads. Its signature is that of the plan, and its
metadata have the commit and a fingerprint of the rows that it learned.
"""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from streamomd.checkpoint import open_store, read_ledger
from streamomd.checkpoint.commit_reader import read_commit
from streamomd.core.errors import InputNotFoundError, OutputExistsError
from streamomd.core.installed import needs_extra
from streamomd.core.urls import shown
from streamomd.features import Plan
from streamomd.training.model import Model
from streamomd.training.scoring.scorer import Scorer

FLAVOR = "streamomd"
SCORER = "scorer.streamomd"
_KINDS = {
    "int": "long", "float": "double", "double": "double", "halffloat": "double", "bool": "boolean",
    "date": "datetime", "timestamp": "datetime", "binary": "binary", "large_binary": "binary",
}  # fmt: skip
"""MLflow's types by Arrow's, without their sizes and units; all others are texts."""


def save_model(
    model: Model,
    path: str,
    mlflow_model: Any = None,
    *,
    signature: Any = None,
    metadata: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> None:
    """Save a model to a new directory, which ``mlflow.pyfunc.load_model`` reads.

    signature: instead of that of the plan. metadata: in addition to commit, rows and fingerprint.
    storage_options: of the checkpoint, whose list of shards the fingerprint is made of. options:
    ignored, as MLflow passes its own. Raises OutputExistsError for a directory that is not
    empty, DivergedError for a model that is not finite, MissingExtraError without MLflow.
    """
    mlflow = _mlflow()
    folder = Path(path)
    if folder.exists() and any(folder.iterdir()):
        raise OutputExistsError(f"{shown(path)} is not empty: choose another directory")
    folder.mkdir(parents=True, exist_ok=True)
    scorer = model.scorer()
    scorer.save(folder / SCORER)
    made = mlflow.models.Model() if mlflow_model is None else mlflow_model
    made.signature = signature or made.signature or signature_of(model)
    described = description_of(model, storage_options)
    made.metadata = {**(made.metadata or {}), **described, **(metadata or {})}
    made.add_flavor(
        FLAVOR, data=SCORER, streamomd_version=version("streamomd"), commit=model.sequence
    )
    (folder / "requirements.txt").write_text(
        f"mlflow-skinny=={version('mlflow-skinny')}\npandas\nstreamomd=={version('streamomd')}\n"
    )
    (folder / "python_env.yaml").write_text(
        f"python: {platform.python_version()}\nbuild_dependencies:\n- pip\n"
        "dependencies:\n- -r requirements.txt\n"
    )
    mlflow.pyfunc.add_to_model(
        made, loader_module=__name__, data=SCORER, python_env="python_env.yaml"
    )
    made.save(str(folder / "MLmodel"))


def log_model(
    model: Model,
    name: str = "model",
    *,
    registered_model_name: str | None = None,
    signature: Any = None,
    metadata: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Log a model to the active MLflow run, or a new one; returns MLflow's ModelInfo.

    options: as ``mlflow.models.Model.log`` takes them. The rest is as in ``save_model``.
    """
    return _mlflow().models.Model.log(
        artifact_path=None,
        name=name,
        flavor=sys.modules[__name__],
        registered_model_name=registered_model_name,
        metadata=dict(metadata or {}),
        model=model,
        storage_options=storage_options,
        signature=signature or signature_of(model),
        **options,
    )


def load_model(model_uri: str, dst_path: str | None = None) -> Scorer:
    """The scorer of a logged or saved model. Nothing of it is executed.

    dst_path: local directory to download it to. Raises InputNotFoundError for a model of another
    flavor, DataError for a damaged one.
    """
    mlflow = _mlflow()
    folder = Path(mlflow.artifacts.download_artifacts(artifact_uri=model_uri, dst_path=dst_path))
    if FLAVOR not in mlflow.models.Model.load(str(folder)).flavors:
        raise InputNotFoundError(
            f"the MLflow model {shown(model_uri)} is not one of streamomd: "
            "streamomd.integrations.mlflow.log_model logs one"
        )
    return Scorer.load(folder / SCORER)


def _load_pyfunc(path: str) -> Any:
    """Called by ``mlflow.pyfunc.load_model``."""
    return ScorerModel(Scorer.load(path))


class ScorerModel:
    """A scorer as MLflow's python_function has it: a frame in, a frame out."""

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer

    def predict(self, frame: Any, params: Mapping[str, Any] | None = None) -> Any:
        """A frame with the columns prediction, score and, where there are any, probability."""
        predictions, scores, probabilities = self.scorer.many(frame.to_dict("records"))
        found = {"prediction": predictions, "score": scores.tolist()}
        if probabilities is not None:
            found["probability"] = probabilities.tolist()
        return type(frame)(found, index=frame.index)


def signature_of(model: Model) -> Any:
    """MLflow's signature: the feature columns with their types, and the columns of predictions."""
    _mlflow()
    from mlflow.models import ModelSignature
    from mlflow.types.schema import Array, ColSpec, DataType, Schema

    def column(name: str, kind: str) -> Any:
        item = getattr(DataType, kind.removeprefix("list of "))
        return ColSpec(Array(item) if kind.startswith("list of ") else item, name)

    return ModelSignature(
        inputs=Schema([column(name, kind) for name, kind in input_kinds(model.plan).items()]),
        outputs=Schema([column(name, kind) for name, kind in output_kinds(model).items()]),
    )


def input_kinds(plan: Plan) -> dict[str, str]:
    """MLflow's type of each feature column."""
    types = {column.name: column.type for column in plan.types}
    return {name: kind_of(types[name]) for name in plan.features}


def kind_of(type_: str) -> str:
    """MLflow's type of an Arrow type, by its name.

    >>> [kind_of(one) for one in ("int8", "halffloat", "bool", "date32[day]", "large_string")]
    ['long', 'double', 'boolean', 'datetime', 'string']
    >>> kind_of("list<element: int64>"), kind_of("dictionary<values=string, indices=int32>")
    ('list of long', 'string')
    """
    outer, _, inner = type_.partition("<")
    if outer in ("list", "large_list", "fixed_size_list"):
        return f"list of {kind_of(inner.partition(': ')[2].rpartition('>')[0].split(' ')[0])}"
    if outer == "dictionary":
        return kind_of(inner.removeprefix("values=").partition(",")[0])
    name = outer.partition("[")[0].lstrip("u").rstrip("0123456789")
    return _KINDS.get(name, "string")


def output_kinds(model: Model) -> dict[str, str]:
    """MLflow's type of each column of predictions."""
    classes = model.plan.classes
    number = "list of double" if model.engine.layout.learners > 1 else "double"
    found = {"prediction": kind_of(model.plan.label_type) if classes else "double", "score": number}
    if model.has_probabilities:
        found["probability"] = number
    return found


def description_of(
    model: Model, storage_options: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What a model's metadata have: no URLs."""
    found = {
        "streamomd.commit": model.sequence,
        "streamomd.rows": model.metrics.total_rows,
        "streamomd.state_sha256": model.state_sha256,
        "streamomd.classes": list(model.plan.classes),
    }
    fingerprint = dataset_fingerprint(model, storage_options)
    return {**found, "streamomd.dataset_sha256": fingerprint} if fingerprint else found


def dataset_fingerprint(model: Model, storage_options: Mapping[str, Any] | None = None) -> str:
    """SHA-256 over the digests of all row groups that the model's commit lists, in learned order.

    Equal rows in equal files have one fingerprint, wherever they are. Empty without a checkpoint.
    """
    if not model.url or model.sequence < 0:
        return ""
    store = open_store(model.url, storage_options or model.spec.checkpoint.storage_options)
    ledger = read_ledger(store, read_commit(store, model.sequence))
    found, numbers = hashlib.sha256(), dict[str, int]()
    for url, group, digest in ledger.digests():
        number = numbers.setdefault(url, len(numbers))
        found.update(number.to_bytes(8, "little") + group.to_bytes(8, "little") + digest)
    return found.hexdigest()


def _mlflow() -> Any:
    with needs_extra("MLflow is not installed", "mlflow"):
        import mlflow
        import mlflow.artifacts
        import mlflow.models
        import mlflow.pyfunc
    return mlflow
