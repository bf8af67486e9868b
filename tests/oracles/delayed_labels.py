"""Questions and answers of a stream whose labels come later, as river's ``simulate_qa`` has them.

river 0.26, ``river/stream/qa.py``, of a constant delay, literally: rows wait in a queue; before a
question is asked at time t, the oldest rows are answered, up to the first whose label is known
after t.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

Event = tuple[int, str]
"""A row's number, and "question", "answer", or "end": an answer after the last question."""


def simulate_qa(moments: Sequence[int], delay: int) -> Iterator[Event]:
    """The events of a stream. moments: of the rows, in their order."""
    queue: list[tuple[int, int]] = []  # the row, and when its label is known
    for row, moment in enumerate(moments):
        while queue:
            oldest, known = queue[0]
            if known > moment:
                break
            yield oldest, "answer"
            queue.pop(0)
        queue.append((row, moment + delay))
        yield row, "question"
    for row, _ in queue:
        yield row, "end"
