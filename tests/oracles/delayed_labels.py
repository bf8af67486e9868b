"""Questions and answers of a stream whose labels come later, as river's ``simulate_qa`` has them.

river 0.26, ``river/stream/qa.py``, literally: before a question is asked at time t, each row that
waits and whose label is known at t or before is answered, the earliest label first.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence

Event = tuple[int, str]
"""A row's number, and "question", "answer", or "end": an answer after the last question."""


def simulate_qa(moments: Sequence[int], delay: int) -> Iterator[Event]:
    """The events of a stream. moments: of the rows, in their order."""
    queue: list[tuple[int, int]] = []  # when the label is known, and the row
    for row, moment in enumerate(moments):
        while queue:
            known, oldest = queue[0]
            if known > moment:
                break
            yield oldest, "answer"
            queue.pop(0)
        bisect.insort(queue, (moment + delay, row))
        yield row, "question"
    for _, row in queue:
        yield row, "end"


def running_maximum(times: Sequence[int]) -> list[int]:
    """The stream time when each row arrives."""
    found: list[int] = []
    for time in times:
        found.append(max([time, *found[-1:]]))
    return found
