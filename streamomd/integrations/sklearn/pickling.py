"""The model of an estimator: pickled and copied as the content of a commit, without compiled loops.

This module does not import the engine before there is a model.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from streamomd.config.spec import Spec
from streamomd.features import Names, Plan
from streamomd.integrations.sklearn.prepared_scores import PreparedScores
from streamomd.shards.order import Cursor

if TYPE_CHECKING:
    from streamomd.training.model import Model


class PickledModel:
    """A model that ``pickle`` and ``copy`` save as JSON and arrays."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.parameters = ""
        """The estimator's parameters when they last matched the model."""
        self.scores = PreparedScores()

    def copy(self) -> PickledModel:
        """A deep copy."""
        restore, saved = self.__reduce__()
        return restore(*saved)

    def __reduce__(self) -> tuple[Callable[..., PickledModel], tuple[str, list[Any]]]:
        from streamomd.integrations.sklearn.changed_slots import changed
        from streamomd.training.model_document import document_of, parts_of

        model = self.model
        document = document_of(model, names=model.names.to_json())
        parts = changed(parts_of(model.state, model.metrics), model.state.layout)
        return restored, (json.dumps(document), parts)


def restored(text: str, parts: list[Any]) -> PickledModel:
    """Rebuild a pickled model, with its own memory and engine."""
    from streamomd.integrations.sklearn.changed_slots import filled
    from streamomd.rules.abilities import refuse_other_state
    from streamomd.training.metrics import Metrics
    from streamomd.training.model import Model

    document = json.loads(text)
    spec = Spec.parse(document["job"])
    # Rows passed to fit may have had weights: an estimator's job does not record that.
    saved = spec.saved(document.get("state_version", 1))._replace(weighted=True)
    refuse_other_state(spec.rule, saved)
    model = Model.new(spec, Plan.from_json(document["plan"]))
    for low, high, arrays in filled(parts, model.state.layout):
        model.state.fill(low, high, arrays)
        if low == 0:  # with the metrics
            classifies = model.metrics.classifies
            model.metrics = Metrics.from_arrays(arrays, classifies=classifies)
    model.cursor = Cursor.from_json(document["cursor"])
    model.names = Names.from_json(document["names"])
    model.finished = document["finished"]
    return PickledModel(model)
