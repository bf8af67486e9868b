"""Boosted trees: grown on the first rows by LightGBM, an optional package; their margins, which are
written next to the numbers of rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Floats
from streamomd.core.errors import MissingExtraError, UnsupportedError
from streamomd.core.trees import MOST_MARGINS, Growth
from streamomd.features.csr import Columns
from streamomd.features.numeric import Numbers
from streamomd.features.plan import Plan, number_at

ROWS = 32_768
"""First rows that trees are grown on."""
FIRST, RATIO = 1_000, 1.6
"""Rows of the first growth, and those of each one divided by those of the one before."""
MOST_READ = 64 * ROWS
"""Rows that are read for them, of which a filter may drop most."""
MOST_TREES, LEAST_TREES = 300, 40
"""Trees of a growth; of several margins as many in all, but these of each."""
PATIENCE = 20
"""Trees without a gain on the last tenth of the rows after which a growth ends."""
MOST_CATEGORIES, FEWEST_ROWS, SMOOTHING = 254, 5, 10.0
"""Categories of a column with a code of their own, the rows that each must have, and rows of the
mean label that are added to each one's."""
OBJECTIVES = {
    "square": "regression", "absolute": "regression_l1", "epsilon_insensitive": "regression_l1",
    "huber": "huber", "pinball": "quantile", "poisson": "poisson", "gamma": "gamma",
    "tweedie": "tweedie",
}  # fmt: skip
"""LightGBM's name of each loss of regression."""
LOGS = ("poisson", "gamma", "tweedie")
"""Those whose margin is the logarithm of the mean."""
SETTINGS = {
    "learning_rate": 0.1, "num_leaves": 31, "min_data_in_leaf": 20, "lambda_l2": 1.0,
    "max_bin": 255, "num_threads": 1, "deterministic": True, "force_row_wise": True, "seed": 0,
    "feature_pre_filter": False, "verbose": -1,
}  # fmt: skip


def require_library() -> Any:
    """LightGBM. Raises MissingExtraError."""
    try:
        import lightgbm
    except (ImportError, OSError):  # OSError: without OpenMP's library
        raise MissingExtraError(
            "model.shapes = 'all' grows trees with LightGBM, which is not installed: "
            "pip install 'streamomd[trees]'"
        ) from None
    return lightgbm


def library_name() -> str:
    """LightGBM's name and version."""
    return f"lightgbm {require_library().__version__}"


def margins_of_trees(loss: str, classes: int) -> int:
    """How many margins trees have. Raises UnsupportedError for losses and classes without any."""
    if not classes and loss not in OBJECTIVES:
        raise UnsupportedError(
            f"model.shapes = 'all': no trees are grown for loss {loss!r}; take one of "
            f"{', '.join(OBJECTIVES)}, or model.shapes = 'columns'"
        )
    if classes > MOST_MARGINS:
        raise UnsupportedError(
            f"model.shapes = 'all' grows trees for at most {MOST_MARGINS} classes, and there are "
            f"{classes:,}; take model.shapes = 'columns'"
        )
    return classes if classes > 2 else 1


def counts_of(rows: int) -> list[int]:
    """How many first rows each growth has; none for fewer rows than ``FIRST``.

    >>> counts_of(3000), counts_of(999), len(counts_of(1_000_000))
    ([1000, 1600, 2560, 3000], [], 9)
    """
    last, found = min(rows, ROWS), list[int]()
    while (count := int(FIRST * RATIO ** len(found))) < last:
        found.append(count)
    return [*found, last] if last >= FIRST else []


class Grower:
    """Grows trees on more and more of the first rows.

    x: (rows, columns), NaN where a number is missing; the last ``categories`` columns are
    coordinates. y: as the loss learns them. weight: 0 for rows that are not learned.
    """

    def __init__(
        self, x: Floats, y: Floats, weight: Floats, categories: int, classes: int, loss: str,
        loss_params: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self.x, self.y, self.weight = x, y, weight
        self.categories, self.classes, self.loss, self.loss_params = (
            categories, classes, loss, loss_params,
        )  # fmt: skip
        self.margins = margins_of_trees(loss, classes)
        self._unit = 0.0
        """The standard deviation of the target in the first growth: margins have one unit."""

    def grown(self, count: int) -> Growth:
        """Trees of the first ``count`` rows."""
        learned = np.flatnonzero(self.weight[:count] > 0.0)
        x, y, weight = self.x[learned], self.y[learned], self.weight[learned]
        if len(y) < FIRST // 2 or y.min() == y.max():
            return _flat(self._codes(x[:0], y[:0], weight[:0]), [])
        weight = weight / weight.mean()
        with np.errstate(all="ignore"):  # such as of labels of 1e300
            target, start, more = self._target(y, weight)
            narrow = target.astype(np.float32)  # as LightGBM reads labels
        if not np.isfinite([*start, *narrow]).all() or narrow.min() == narrow.max():
            return _flat(self._codes(x[:0], y[:0], weight[:0]), [])
        codes = self._codes(x, target, weight)
        bare = _flat(codes, [])
        x, first = bare.coded(x), len(y) - len(y) // 10
        lightgbm = require_library()
        starts = np.tile(start, (len(y), 1))
        sets: list[Any] = []
        for rows in (slice(0, first), slice(first, None)):
            sets.append(lightgbm.Dataset(
                x[rows], target[rows], weight=weight[rows],
                init_score=starts[rows].ravel(order="F"), params=SETTINGS, free_raw_data=False,
                reference=sets[0] if sets else None,
            ))  # fmt: skip
        most = max(MOST_TREES // self.margins, LEAST_TREES) if self.margins > 1 else MOST_TREES
        quiet = lightgbm.early_stopping(PATIENCE, verbose=False)
        made = lightgbm.train(
            {**SETTINGS, **more}, sets[0], most, valid_sets=[sets[1]], callbacks=[quiet]
        )
        trees = made.dump_model(num_iteration=made.best_iteration or -1)["tree_info"]
        return _flat(codes, [one["tree_structure"] for one in trees])

    def _target(self, y: Floats, weight: Floats) -> tuple[Floats, Floats, dict[str, Any]]:
        """The target, where each margin starts, and parameters. Margins are relative to the start,
        which the bias learns."""
        if self.classes == 2:
            target = (y > 0.0).astype(np.float64)
            p = np.average(target, weights=weight)
            return target, np.log([p / (1.0 - p)]), {"objective": "binary"}
        if self.classes:
            mass = np.bincount(y.astype(np.int64), weight, self.classes)
            start = np.log(np.maximum(mass, 0.5) / mass.sum())
            return y, start, {"objective": "multiclass", "num_class": self.classes}
        more: dict[str, Any] = {"objective": OBJECTIVES[self.loss]}
        mean = np.average(y, weights=weight)
        if self.loss in LOGS:
            if self.loss == "tweedie":
                more["tweedie_variance_power"] = self.loss_params["power"]
            return y, np.log([mean]), more
        if not self._unit:
            self._unit = float(np.sqrt(np.average((y - mean) ** 2, weights=weight)))
        if self.loss == "huber":
            more["alpha"] = max(self.loss_params["threshold"] / self._unit, 1e-9)
        share = self.loss_params["tau"] if self.loss == "pinball" else 0.5
        more |= {"alpha": share} if self.loss == "pinball" else {}
        centre = mean if self.loss in ("square", "huber") else _quantile(y, weight, share)
        return (y - centre) / self._unit, np.zeros(1), more

    def _codes(self, x: Floats, target: Floats, weight: Floats) -> Growth:
        """A growth without nodes: the categories of each column in the order of their mean
        label, those with few rows, and all others, at the place of the mean of all."""
        places, codes, ends, unseen = [np.empty(0, np.int64)], [np.empty(0)], [], []
        mean = np.average(target, weights=weight) if len(target) else 0.0
        for column in x.T[x.shape[1] - self.categories :] if self.categories else ():
            categories, of = np.unique(column.astype(np.int64), return_inverse=True)
            rows, mass = (
                np.bincount(of, minlength=len(categories)),
                np.bincount(of, weight, len(categories)),
            )
            rise = np.bincount(of, weight * (target - mean), len(categories)) / (mass + SMOOTHING)
            often = np.argsort(-rows, kind="stable")[:MOST_CATEGORIES]
            often = np.sort(often[rows[often] >= FEWEST_ROWS])
            code = np.empty(len(often))
            code[np.argsort(rise[often], kind="stable")] = np.arange(len(often))
            places.append(categories[often])
            codes.append(code)
            ends.append(len(often))
            unseen.append(np.count_nonzero(rise[often] < 0.0) - 0.5)
        none = np.empty(0, np.int32), np.empty(0), np.empty(0, np.int32), np.empty(0, np.int8)
        return Growth(
            *none, np.zeros(1, np.int64), np.concatenate(places), np.concatenate(codes),
            np.cumsum(ends, dtype=np.int64), np.array(unseen, np.float64),
        )  # fmt: skip


def _quantile(y: Floats, weight: Floats, share: float) -> float:
    order = np.argsort(y, kind="stable")
    summed = np.cumsum(weight[order])
    return float(y[order[np.searchsorted(summed, share * summed[-1])]])


def _flat(codes: Growth, trees: Sequence[Mapping[str, Any]]) -> Growth:
    """The growth of LightGBM's trees, with these categories."""
    nodes: list[tuple[int, float, int, int]] = []
    roots = [0]
    for tree in trees:
        _add(tree, nodes)
        roots.append(len(nodes))
    feature, value, right, nan_left = zip(*nodes, strict=True) if nodes else ((), (), (), ())
    return codes._replace(
        feature=np.array(feature, np.int32), value=np.array(value, np.float64),
        right=np.array(right, np.int32), nan_left=np.array(nan_left, np.int8),
        roots=np.array(roots, np.int64),
    )  # fmt: skip


def _add(tree: Mapping[str, Any], nodes: list[tuple[int, float, int, int]]) -> None:
    """Append a tree's nodes, each before its left child, and that before the right one."""
    if "split_feature" not in tree:
        nodes.append((-1, float(tree["leaf_value"]), 0, 0))
        return
    at, threshold = len(nodes), float(tree["threshold"])
    # A column without missing values in these rows takes a later one as 0.
    nan_left = tree["default_left"] if tree["missing_type"] == "NaN" else threshold >= 0.0
    nodes.append((0, 0.0, 0, 0))
    _add(tree["left_child"], nodes)
    nodes[at] = int(tree["split_feature"]), threshold, len(nodes), int(nan_left)
    _add(tree["right_child"], nodes)


Gone = Sequence[NDArray[np.bool_]]
"""Where a value is missing, for each column with an indicator."""


def values_of_trees(
    plan: Plan, table: Numbers, gone: Gone = (), coordinates: Columns | None = None
) -> Floats:
    """What trees read of rows: their numbers, NaN where one is missing, and the hashed coordinates,
    from 0, of what has one category a row. coordinates: (features, rows), bias included."""
    numbers, single = known_numbers(plan, table, gone), len(plan.single)
    if coordinates is None:
        return numbers
    return np.column_stack([numbers, (coordinates[:single] - plan.hashed_offset).T])


def known_numbers(plan: Plan, table: Numbers, gone: Gone) -> Floats:
    """Numeric and vector coordinates of rows, NaN where one is missing."""
    found = table[:, : plan.given_numbers].astype(np.float64)
    if gone:
        missing_in = dict(zip(plan.indicators, gone, strict=True))
        for at in range(plan.given_numbers):
            column, _ = number_at(plan, at)
            if column in missing_in:
                found[missing_in[column], at] = np.nan
    return found


def write_margins(
    plan: Plan, table: Numbers, gone: Gone = (), coordinates: Columns | None = None,
    growths: NDArray[np.int64] | None = None,
) -> None:  # fmt: skip
    """Write the margins of trees after the numbers and hats of a matrix of rows. growths: of each
    row, see ``Trees.growth_of``."""
    if plan.trees is None:
        return
    values = values_of_trees(plan, table, gone, coordinates)
    out = table[:, plan.numbers - plan.margins : plan.numbers]
    if growths is None:
        out[:] = plan.trees.margins_of_rows(values)
        return
    for which in np.unique(growths).tolist():
        rows = growths == which
        if which < 0:
            out[rows] = 0.0
        else:
            out[rows] = plan.trees.margins_of_rows(values[rows], which)
