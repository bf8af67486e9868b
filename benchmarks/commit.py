"""How long does learning wait for a commit, aside and not?

NAG with its slots in float64, something in every one, on 2^18 and 2^22 coordinates; a checkpoint on
the local disk, in a folder of its own. In turn: a commit that learning waits for, and one that is
put aside, of which the wait alone counts; between two nothing is under way. Wait ÷ wait, the median
of the pairs.

Targets: aside at most a fifth of the other at 2^22.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from typing import Any

import common
import numpy as np


def keeper(size: int, url: str) -> Any:
    """What keeps a model of so many coordinates, its first commit made."""
    import pyarrow as pa

    from streamomd.checkpoint import Ledger, Writer, open_store, write_document
    from streamomd.config.spec import Spec
    from streamomd.features import make_plan
    from streamomd.training.checkpoint_manager import CheckpointManager
    from streamomd.training.model import Model
    from streamomd.training.model_document import document_of, parts_of

    bits = size.bit_length() - 1
    spec = Spec.parse(
        {
            "data": {"label": "y", "hashed": ["h"], "bits": bits},
            "model": {"rule": "nag"},
            "checkpoint": {"url": url, "every_rows": 1, "every_seconds": 0},
        }
    )
    schema = pa.schema([("y", pa.int64()), ("h", pa.string())])
    model = Model.new(spec, make_plan(spec.data, spec.model, schema, lambda: [0, 1]))
    model.state.cells[...] = np.random.default_rng(0).random(len(model.state.cells))
    model.metrics.begin(0)
    store = open_store(url)
    document = document_of(model, segments=[], names=write_document(store, "names", {}))
    parts = parts_of(model.state, model.metrics)
    writer = Writer.begin(store, document, parts, keep=spec.checkpoint.keep)
    return model, CheckpointManager(model, store, writer, Ledger())


def waits(size: int, times: int, folder: str) -> tuple[list[float], list[float], int]:
    """Seconds that learning waited for each commit, not aside and aside; and the state's bytes."""
    model, kept = keeper(size, f"{folder}/{size}")
    waited, aside = [], []
    for _ in range(times + 1):
        for found, deed in (
            (waited, kept.commit),
            (aside, lambda: kept.update(model.metrics)),
        ):
            model.metrics.count(1)
            began = time.perf_counter()
            deed()
            found.append(time.perf_counter() - began)
            kept.close()
    return waited[1:], aside[1:], model.state.nbytes  # the first ones touched fresh memory


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--powers", type=int, nargs="+", default=[18, 22], help="2^: coordinates")
    parser.add_argument("--times", type=int, default=7, help="commits of each kind")
    args = parser.parse_args()
    figures: dict[str, Any] = {}
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for power in args.powers:
            waited, aside, nbytes = waits(1 << power, args.times, folder)
            share = common.ratio(aside, waited)
            figures[f"aside ÷ waited, 2^{power}"] = share
            middle = (statistics.median(waited), statistics.median(aside))
            lines.append((f"2^{power}", nbytes / 2**20, *(1000 * one for one in middle), share))
    common.table(("coordinates", "MiB", "waited ms", "aside ms", "aside ÷ waited"), lines)
    common.finish(figures, as_json=args.json)


if __name__ == "__main__":
    main()
