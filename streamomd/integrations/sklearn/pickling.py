"""The model inside an estimator: pickled, and copied, as what a commit keeps; no loop goes along.

Nothing here imports the engine before there is a model.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from streamomd.config.spec import Spec
from streamomd.features import Names, Plan
from streamomd.shards.cursor import Cursor

if TYPE_CHECKING:
    from streamomd.training.model import Model


class PickledModel:
    """A model; ``pickle`` and ``copy`` take its description, as JSON, and its arrays."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.told = ""
        """The estimator's parameters when they were last seen to be the model's."""

    def copy(self) -> PickledModel:
        """The same numbers in memory of their own."""
        restore, saved = self.__reduce__()
        return restore(*saved)

    def __reduce__(self) -> tuple[Callable[..., PickledModel], tuple[str, list[Any]]]:
        from streamomd.training.model_document import document_of, parts_of

        document = document_of(self.model, names=self.model.names.to_json())
        return restored, (
            json.dumps(document),
            list(parts_of(self.model.state, self.model.metrics)),
        )


def restored(text: str, parts: list[Any]) -> PickledModel:
    """Back from what was pickled, with memory and an engine of its own."""
    from streamomd.rules.state_versions import refuse_other_state
    from streamomd.training.metrics import Metrics
    from streamomd.training.model import Model

    document = json.loads(text)
    spec = Spec.parse(document["job"])
    # Rows given to fit may have had weights: the job of an estimator does not say.
    saved = spec.saved(document.get("state_version", 1))._replace(weighted=True)
    refuse_other_state(spec.rule, saved)
    model = Model.new(spec, Plan.from_json(document["plan"]))
    for low, high, arrays in parts:
        model.state.fill(low, high, arrays)
    # The first part tells of the whole.
    model.metrics = Metrics.from_arrays(parts[0][2], classifies=model.metrics.classifies)
    model.cursor = Cursor.from_json(document["cursor"])
    model.names = Names.from_json(document["names"])
    model.finished = document["finished"]
    return PickledModel(model)
