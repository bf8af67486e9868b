"""P1, figure 1: NAG against AG on two features, the first of them multiplied by s.

The rows are made up, as the paper's: x uniform in the square, y the sign of x1 + x2, some labels
turned. NAG's predictions cannot depend on s; AG's do. AG is shown with the eta that is best at
s = 1, and with the best eta for each s.

    python pipelines/papers/p1_figure1.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import sets
from common import Rows, Section, arguments, error, learn, read, scaled, shown

ETAS = [float(eta) for eta in 10.0 ** np.linspace(-6, 6, 37)]
NAG_ETAS = [float(eta) for eta in 10.0 ** np.linspace(-2, 2, 13)]
NOISE = 0.05


def two_features(rows: int) -> pa.Table:
    """The stream, at s = 1."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-1.0, 1.0, size=(rows, 2))
    turned = rng.random(rows) < NOISE
    y = np.where((x.sum(axis=1) > 0.0) != turned, 1, -1)
    return pa.table({"x1": x[:, 0], "x2": x[:, 1], "y": y.astype(np.int8)})


def best(rows: Rows, rule: str, etas: list[float]) -> tuple[float, float]:
    """The least progressive error, and its eta."""
    return min((error(learn(rows, rule, "", {"eta": eta})), eta) for eta in etas)


def compare(rows: Rows, scales: list[float]) -> list[tuple[float, ...]]:
    """s, and the errors of NAG, of AG with the eta of s = 1, of AG's best eta, and that eta."""
    nag, ag = best(rows, "nag", NAG_ETAS)[1], best(rows, "adagrad", ETAS)[1]
    lines = []
    for s in scales:
        changed = scaled(rows, np.array([1.0 / s, 1.0]))
        errors = [
            error(learn(changed, r, "", {"eta": e})) for r, e in (("nag", nag), ("adagrad", ag))
        ]
        least, eta = best(changed, "adagrad", ETAS)
        lines.append((s, *errors, least, eta))
    return lines


def draw(lines: list[Any]) -> Callable[[Any], None]:
    """Error against s."""

    def on(figure: Any) -> None:
        axes = figure.subplots()
        s, nag, ag, least, _ = zip(*lines, strict=True)
        axes.semilogx(s, nag, "-", label="NAG")
        axes.semilogx(s, ag, "--", label="AG, eta of s = 1")
        axes.semilogx(s, least, ":", label="AG, best eta for each s")
        axes.set(xlabel="s, the scale of the first feature", ylabel="progressive 0-1 error")
        axes.legend()

    return on


def main(argv: list[str] | None = None) -> int:
    """Run; 1 if a check failed."""
    chosen = arguments(__doc__ or "").parse_args(argv)
    section = Section(chosen.out, "p1_figure1", "P1, figure 1: one of two features rescaled")
    count = 500 if chosen.tiny else 20_000
    rows = read(sets.shards(chosen.out, f"two-features-{count}", lambda: two_features(count)))
    lines = compare(rows, [4.0**power for power in range(-8, 9, 2)])
    section.say(f"{count:,} rows; y is the sign of x1 + x2, {NOISE:.0%} of the labels flipped.")
    section.table(["s", "NAG", "AG, eta of s = 1", "AG, best eta", "that eta"], lines)
    nag = {line[1] for line in lines}
    section.check(
        f"NAG's error is the same at every s: {', '.join(map(shown, nag))}", len(nag) == 1
    )
    middle, ag = lines[len(lines) // 2][2], max(line[2] for line in lines)
    section.check(f"AG's error with one eta grows, from {middle:.3g} to {ag:.3g}", ag > middle)
    worst = max(line[3] for line in lines)
    text = f"no eta saves AG: its best error is {worst:.3g} at the worst s, NAG's {max(nag):.3g}"
    section.check(text, worst > max(nag), ours=not chosen.tiny)
    section.say("")
    section.say(
        "The paper shows a plot without numbers: NAG constant, AG increasing with the scale."
    )
    section.picture(draw(lines), (6, 4))
    return section.close()


if __name__ == "__main__":
    sys.exit(main())
