"""The grid of a sweep: what is tried of each key, and a job of its own for each combination."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from streamomd.config.build_job import parse_sets
from streamomd.config.flags import dotted
from streamomd.config.spec import Spec
from streamomd.core.errors import UsageError
from streamomd.core.wording import job_word, nearest
from streamomd.training.progress import note

MOST = 1000
"""Learners of a sweep: more are a slip of the pen, and would not fit in a commit's document."""
EXAMPLE = "e.g. --grid eta=0.01..10:16 --grid rule=nag,adagrad"
_RANGE = re.compile(r"(lin:)?([^,]+?)\.\.([^,]+):([^,:]+)")
_ENDS = re.compile(r"(lin:)?[^,:]+\.\.[^,:]+")
_NUMBER = r"(\d+\.?\d*(?:e[+-]?\d+)?)"
_DASHED = re.compile(rf"(lin:)?{_NUMBER}\s*(?:-|:|to)\s*{_NUMBER}")
"""A range in another notation."""
_LEARNERS = ("model.rule", "model.loss", "model.scale_target", "model.certificate")
_PARAMETERS = ("model.params.", "model.loss_params.")
PLURALS = {"rules": "rule", "losses": "loss"}
_ROWS = (
    "data.", "model.task", "model.classes", "model.bias", "model.dtype", "model.shapes",
)  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One learner of a sweep: what was chosen for it, by key, and its job."""

    chosen: Mapping[str, Any]
    spec: Spec


def parse_grid(texts: Iterable[str]) -> dict[str, list[Any]]:
    """``key=values`` texts; see ``values_of``.

    >>> parse_grid(["eta=0.01..10:4", "rule=nag,ng"])
    {'eta': [0.01, 0.1, 1.0, 10.0], 'rule': ['nag', 'ng']}
    """
    grid: dict[str, list[Any]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--grid {text}: expected key=values, {EXAMPLE}")
        if key.strip() in grid:
            raise UsageError(f"--grid {text}: {key.strip()!r} is there already; name it once")
        grid[key.strip()] = values_of(key.strip(), values)
    return grid


def values_of(key: str, given: str | Sequence[Any]) -> list[Any]:
    """The values of a key: a list as it is; of a text ``a..b:n`` n values, each as many times the
    one before (a and b above 0); ``lin:a..b:n``, each as much more; ``v1,v2``: these.

    What lies between a and b is rounded to six digits, so that it can be typed.

    >>> values_of("eta", "0.1..1:3"), values_of("eta", "lin:0..1:3"), values_of("C", "1,2.5")
    ([0.1, 0.316228, 1.0], [0.0, 0.5, 1.0], [1, 2.5])
    """
    if not isinstance(given, Iterable):
        raise UsageError(
            f"grid {key!r} = {given!r}: expected a list of values, or a text, {EXAMPLE}"
        )
    if not isinstance(given, str):
        values = [_plain(value) for value in given]
    else:
        match = _RANGE.fullmatch(given.strip())
        if not match and _ENDS.fullmatch(given.strip()):
            raise UsageError(
                f"grid {key}={given}: a range needs how many values, {key}={given.strip()}:8"
            )
        if not match and (other := _DASHED.fullmatch(given.strip())):
            linear, low, high = other.groups("")
            example = f"{key}={linear}{low}..{high}:5"
            raise UsageError(f"grid {key}={given}: a range is low..high:count, e.g. {example}")
        if not match and ".." in given and not given.strip().startswith(("[", '"', "'")):
            raise UsageError(f"grid {key}={given}: a range is low..high:count, {EXAMPLE}")
        values = _between(key, *match.groups()) if match else _listed(key, given)
    if not values:
        raise UsageError(f"grid {key!r}: no value; expected key=values, {EXAMPLE}")
    return values


def entries(
    make: Callable[[Mapping[str, Any]], Spec], grid: Mapping[str, Sequence[Any]]
) -> list[Entry]:
    """A learner for each combination that makes a valid job; the others are reported.

    make: a job of these choices, by dotted key. Raises UsageError if no combination is legal, or a
    key cannot differ from learner to learner.
    """
    keys = {key: dotted_key(key) for key in grid}
    if len(set(keys.values())) < len(keys):
        raise UsageError(f"a grid names each key once; got {', '.join(grid)}: {EXAMPLE}")
    count = math.prod(len(values) for values in grid.values())
    if count > MOST:
        raise UsageError(f"a grid of {count:,} learners: at most {MOST:,} go side by side")
    choices = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    return entries_of(make, keys, list(_run_once(make, keys, choices)))


def entries_of(
    make: Callable[[Mapping[str, Any]], Spec],
    keys: Mapping[str, str],
    choices: Sequence[Mapping[str, Any]],
) -> list[Entry]:
    """Returns the entries of these combinations, see ``entries``. keys: the dotted name of each
    key."""
    legal: list[Entry] = []
    refused: dict[str, list[Mapping[str, Any]]] = {}
    for chosen in choices:
        try:
            spec = make({keys[key]: value for key, value in chosen.items()})
        except UsageError as error:
            refused.setdefault(str(error), []).append(chosen)
            continue
        if any(spec.model == other.spec.model for other in legal):
            refused.setdefault("the same learner is there already", []).append(chosen)
        else:
            legal.append(Entry(chosen, spec))
    if not legal:
        raise UsageError(f"no combination of this grid can be learned: {'; '.join([*refused][:5])}")
    for line in _skipped_notes(refused):
        note(line)
    return legal


def _run_once(
    make: Callable[[Mapping[str, Any]], Spec],
    keys: Mapping[str, str],
    choices: Sequence[Mapping[str, Any]],
) -> Iterator[Mapping[str, Any]]:
    """The combinations; where a rule or loss of the grid lacks a parameter that another one has,
    one without it in the place of one for each of its values."""
    names = {key: name for key, name in keys.items() if name.startswith(_PARAMETERS)}
    kinds = [{k: v for k, v in chosen.items() if k not in names} for chosen in choices]
    if not names or all(kind == kinds[0] for kind in kinds):
        yield from choices
        return
    known = {repr(kind): _parameters(make, keys, kind) for kind in kinds}
    somewhere = set().union(*(names for names in known.values() if names is not None))
    said: dict[str, None] = {}
    seen: list[Mapping[str, Any]] = []
    for chosen, kind in zip(choices, kinds, strict=True):
        own = known[repr(kind)]
        lacks = [
            key for key, name in names.items()
            if own is not None and name in somewhere and name not in own
        ]  # fmt: skip
        less = {key: value for key, value in chosen.items() if key not in lacks}
        if lacks and less in seen:
            continue
        if lacks:
            seen.append(less)
            said[f"{worded(less)} has no {', '.join(lacks)}: it runs once"] = None
        yield less
    for line in said:
        note(line)


def _parameters(
    make: Callable[[Mapping[str, Any]], Spec], keys: Mapping[str, str], kind: Mapping[str, Any]
) -> set[str] | None:
    """Dotted names of the parameters of a rule and its loss; None if they make no valid job."""
    try:
        spec = make({keys[key]: value for key, value in kind.items()})
    except UsageError:
        return None
    return {
        *(f"model.params.{name}" for name in spec.rule.parse_params({})),
        *(f"model.loss_params.{name}" for name in spec.loss.parse_params({})),
    }


def worded(chosen: Mapping[str, Any]) -> str:
    """Choices as a person reads them.

    >>> worded({})
    'the job'
    >>> worded({"rule": "nag", "eta": 0.1, "model.params.implicit": True})
    'rule=nag eta=0.1 implicit=true'
    """
    if not chosen:
        return "the job"
    return " ".join(f"{key.rpartition('.')[2]}={job_word(value)}" for key, value in chosen.items())


def _skipped_notes(refused: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    for reason, choices in refused.items():
        more = f" and {len(choices) - 1} more" if len(choices) > 1 else ""
        yield f"left out: {worded(choices[0])}{more}: {reason}"


def dotted_key(key: str) -> str:
    """The dotted name of a grid's key. Raises UsageError for one that learners cannot differ in."""
    name = dotted(key)
    if key in PLURALS:  # else it is a parameter, which no rule has
        raise UsageError(f"grid {key!r}: did you mean {PLURALS[key]!r}?")
    if name in _LEARNERS or name.startswith(_PARAMETERS):
        return name
    if name.startswith(_ROWS):
        raise UsageError(
            f"grid {key!r}: {name} changes how rows are read, and the learners of a sweep read "
            "the same rows once: take a sweep for each"
        )
    known = [*_LEARNERS, *(f"{table}NAME" for table in _PARAMETERS)]
    near = nearest(name, known)
    hint = f"did you mean {near!r}? " if near else ""
    raise UsageError(
        f"grid {key!r}: {name} is the whole sweep's. {hint}What may differ: a parameter by its "
        f"name, or {', '.join(known)}"
    )


def _plain(value: Any) -> Any:
    """A number of numpy's as Python's own: a commit saves plain JSON."""
    return value.item() if hasattr(value, "item") else value


def _listed(key: str, text: str) -> list[Any]:
    """TOML values between commas, or texts where they are none."""
    if "," in text and not all(part.strip() for part in text.split(",")):
        raise UsageError(f"grid {key}={text}: a value between two commas is missing")
    whole = parse_sets((f"{key}=[{text}]",))[key]
    if isinstance(whole, list):
        return whole
    words = [word.strip() for word in text.split(",") if word.strip()]
    return [parse_sets((f"{key}={word}",))[key] for word in words]


def _between(key: str, linear: str | None, low: str, high: str, count: str) -> list[float]:
    text = f"{linear or ''}{low}..{high}:{count}"
    try:
        a, b, n = float(low), float(high), int(count)
    except ValueError:
        raise UsageError(f"grid {key}={text}: expected numbers, a..b:n, {EXAMPLE}") from None
    if not (math.isfinite(a) and math.isfinite(b) and 2 <= n <= MOST):
        raise UsageError(f"grid {key}={text}: expected finite ends, and 2 to {MOST} values")
    if linear:
        inside = [a + (b - a) * (step / (n - 1)) for step in range(1, n - 1)]
    elif a > 0.0 and b > 0.0:
        ratio = math.log(b) - math.log(a)
        inside = [math.exp(math.log(a) + ratio * (step / (n - 1))) for step in range(1, n - 1)]
    else:
        raise UsageError(
            f"grid {key}={text}: each value is as many times the one before, so both ends must be "
            f"above 0; for equal steps: {key}=lin:{text}"
        )
    return [a, *(float(f"{value:.6g}") for value in inside), b]


BEYOND = 3
"""Values beyond an end that an extension tries."""
NEAR = 1e-3  # relative difference of equal steps


class Edge(NamedTuple):
    """The best value of a key is the largest or smallest of those tried with its rule."""

    key: str
    value: float
    largest: bool
    beyond: tuple[float, ...]

    def __str__(self) -> str:
        end, more = ("largest", "larger") if self.largest else ("smallest", "smaller")
        return (
            f"the best {self.key}, {self.value}, is the {end} of those tried: try {more} ones, or "
            "pass --extend"
        )


def find_edges(best: Mapping[str, Any], tried: Sequence[Mapping[str, Any]]) -> list[Edge]:
    """The keys whose best value is at an end of the values tried, next to the best's other texts.

    >>> find_edges({"eta": 10.0}, [{"eta": 0.1}, {"eta": 1.0}, {"eta": 10.0}])
    [Edge(key='eta', value=10.0, largest=True, beyond=(100.0, 1000.0, 10000.0))]
    >>> find_edges({"eta": 1.0}, [{"eta": 0.1}, {"eta": 1.0}, {"eta": 10.0}])
    []
    """
    words = {key: value for key, value in best.items() if not _is_number(value)}
    alike = [one for one in tried if all(one.get(key) == words[key] for key in words)]
    return list(_edges(best, alike))


def _edges(best: Mapping[str, Any], alike: Sequence[Mapping[str, Any]]) -> Iterator[Edge]:
    for key, value in best.items():
        values = sorted({one[key] for one in alike if _is_number(one.get(key))})
        if not _is_number(value) or len(values) < 2:
            continue
        if value in (values[0], values[-1]):
            largest = value == values[-1]
            yield Edge(key, value, largest, tuple(_beyond(values, largest=largest)))


def _beyond(values: Sequence[float], *, largest: bool) -> Iterator[float]:
    """Yields values beyond an end: as many times the one before, or as much more, as the last two
    values are."""
    end, before = (values[-1], values[-2]) if largest else (values[0], values[1])
    whole = all(isinstance(value, int) for value in values)
    for step in range(1, BEYOND + 1):
        if _even(values) or end <= 0.0 or before <= 0.0:
            found = end + (end - before) * step
        else:
            found = end * _ratio(values, end, before) ** step
        if math.isfinite(found):
            yield round(found) if whole and found == round(found) else float(f"{found:.6g}")


def _ratio(values: Sequence[float], end: float, before: float) -> float:
    """The last step; of equal ones, as of a..b:n, that of all, which were not rounded."""
    count = len(values) - 1
    steps = [high / low for low, high in itertools.pairwise(values)] if values[0] > 0.0 else []
    if not steps or max(steps) > (1.0 + NEAR) * min(steps):
        return end / before
    whole: float = (values[-1] / values[0]) ** (1.0 / count)
    return whole if end > before else 1.0 / whole


def _even(values: Sequence[float]) -> bool:
    """Whether at least three values are in equal steps."""
    steps = [high - low for low, high in itertools.pairwise(values)]
    return len(steps) > 1 and max(steps) - min(steps) <= NEAR * max(steps)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
