"""The Page-Hinkley test as river's documentation and source have it, mode "up" (river 0.26)."""

from __future__ import annotations


class PageHinkley:
    """min_instances, delta, threshold (lambda) and alpha, the forgetting factor."""

    def __init__(self, min_instances: int, delta: float, threshold: float, alpha: float) -> None:
        self.min_instances, self.delta = min_instances, delta
        self.threshold, self.alpha = threshold, alpha
        self._reset()

    def _reset(self) -> None:
        self.drift_detected = False
        self.values: list[float] = []
        self._sum_increase = 0.0
        self._min_increase = float("inf")

    def update(self, x: float) -> None:
        if self.drift_detected:
            self._reset()
        self.values.append(x)
        dev = x - sum(self.values) / len(self.values)
        self._sum_increase = self.alpha * self._sum_increase + dev - self.delta
        self._min_increase = min(self._min_increase, self._sum_increase)
        if len(self.values) >= self.min_instances:
            test_increase = self._sum_increase - self._min_increase
            self.drift_detected = test_increase > self.threshold
