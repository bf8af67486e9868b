"""When B's step of a row is pooled, and when B or G rests: formulas of ``auto`` and ``laplace``.

A row of little leverage moves the weights by little, and the next rows hardly depend on its step.
Such a row is light: its gradient s z is added to a pool and its curvature to A, and neither w nor
P moves. Now and then w takes the pool, w += P pool, and at fixed rows P is computed from A. So a
light row costs O(d) instead of O(d^2). When this happens depends on the rows alone, so batches and
interruptions change no bit.

The leverage z'P z of a light row is estimated as sum d_j z_j^2, d_j = 1 / (A_jj + prior_j) of when
P was computed; heavy rows make d_j smaller, as they do P_jj.

With a log loss, a predictor of which the next row's prediction uses nothing, and the saved model
little, rests: it learns from one run of rows in eight, and these count eight times, in the lead
too, so that its curvature stays that of all rows, and a change is seen as early. The other rows are
predicted by the other one, and leave the lead as it is.
"""

from __future__ import annotations

FROM = 1024
"""The first row that may be light: before it every row changes P by much."""
LIGHT = 0.1
"""A light row's leverage h sum d_j z_j^2 is below it: its step is within a tenth of the exact one.
On 34 tables progressive losses are within .09 % of those of exact steps."""
THIN, THINNEST = 4096, 8
"""From row 2 ``THIN`` on one of r = t / ``THIN`` light rows, at most ``THINNEST``, enters A, with r
times its curvature: A has thousands of rows then."""
OFTEN, SELDOM = 64, 4096
"""The least and the most rows between two computations of P, of which an octave has 32."""
RUN, TURNS = 32, 8
"""What rests learns from ``RUN`` rows of ``TURNS`` times as many."""
SETTLED, DECIDED, UNUSED, WORSE = 65_536, 40.0, 0.1, 1.01
"""From ``SETTLED`` rows on a predictor rests at a lead of ``DECIDED`` of the other one, if its
recent loss is ``WORSE`` times as large and less than ``UNUSED`` of the saved model is its own.
Earlier, a change costs more than is saved; and of two that are close, the second may be better
later."""
REST_NONE, REST_B, REST_G = 0, 1, 2


def turn(t: float, rests: bool) -> float:
    """By what the importance of row t is multiplied for a predictor; 0: it does not learn."""
    if not rests:
        return 1.0
    return 1.0 * TURNS if int(t) // RUN % TURNS == 0 else 0.0


def is_light(t: float, importance: float, leverage: float) -> bool:
    """Whether row t moves little enough. leverage: sum of d_j z_j^2."""
    return t >= FROM and importance * leverage < LIGHT


def lighter(d: float, z: float, a: float) -> float:
    """d_j after a heavy row of curvature a: exact where z has no other coordinate."""
    return d / (1.0 + a * (z * z) * d)


def refreshes(t: float) -> bool:
    """Whether P is computed from A before row t."""
    row = int(t)
    if row < FROM or row % OFTEN != 0:
        return False
    spacing = OFTEN
    while spacing <= row // 64:
        spacing *= 2
    return row % min(spacing, SELDOM) == 0


def takes(t: float) -> bool:
    """Whether w takes the pool after row t."""
    row = int(t)
    if row < 4096:
        return row % 8 == 0
    return row % (16 if row < 16384 else 32) == 0


def entering(t: float) -> float:
    """How often the curvature of light row t is added to A: r times or not at all, by a hash of t
    (Knuth, The Art of Computer Programming 3, section 6.4)."""
    row = int(t)
    if row < 2 * THIN:
        return 1.0
    r = min(THINNEST, row // THIN)
    return 1.0 * r if ((row * 2654435761) & 0xFFFFFFFF) * r < 1 << 32 else 0.0
