r"""Online SVM: after each row the dual is maximised over all rows so far (P2, eq. 31, k = all).

w = sum of alpha_i y_i x_i with 0 <= alpha_i <= C: the support vector machine of the rows so far
(without a separate bias: the bias is a feature that is 1). Coordinate ascent as in dual_ascent,
until no multiplier moves by more than ``tolerance`` C in a sweep.

Cost: O(nnz of all rows so far) a sweep. Every row is stored and visited again at every row: for
small streams, at most ``most`` rows; beyond them the run ends with an error. Certificate as
dual_ascent's.

>>> from streamomd.training.demo import score
>>> score("online_svm", C=0.01, tolerance=0.01)
0.213
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, NamedTuple

from streamomd.rules import dual_ascent
from streamomd.rules.contract import RecentRows
from streamomd.rules.params import Between, Positive


class Hyper(NamedTuple):
    C: Positive = 1.0
    tolerance: Positive = 1e-3
    most: Annotated[float, Between(1.0, 1e6, whole=True)] = 20_000.0


RULE = replace(
    dual_ascent.PLAIN,
    name="online_svm",
    title="the support vector machine of all rows so far, solved at each row: small streams only",
    hyper=Hyper,
    storage=RecentRows(dual_ascent.pair, dual_ascent.cap, dual_ascent.tolerance, most="most"),
)
