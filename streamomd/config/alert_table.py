"""Alert, the table [alert] of a job: what of the rows that are learned is reported."""

from __future__ import annotations

from streamomd.config.job_table import Table, key


class Alert(Table):
    """[alert]: thresholds, off by default; ``delta`` to ``min_instances``: of the loss's test."""

    loss: bool = key(False, "Whether a rise of the progressive loss is an alert.", flag=None)
    delta: float = key(0.005, "Rise of the loss that is not summed.", flag=None, ge=0.0)
    threshold: float = key(
        300.0, "Sum of rises of the loss above which it is an alert.", flag=None, gt=0.0
    )
    alpha: float = key(
        0.9999, "Factor by which that sum fades at each row.", flag=None, gt=0.0, le=1.0
    )
    min_instances: int = key(
        30, "Rows before the first such alert, and after each.", flag=None, ge=1
    )
    rows: int = key(
        10_000, "Rows of a window, which is compared with all rows before it.", flag=None, ge=1
    )
    mean: float | None = key(
        None, "Change of a numeric column's mean that is an alert, in standard deviations.",
        flag=None, gt=0.0, shown_default="none",
    )  # fmt: skip
    null_rate: float | None = key(
        None, "Rise of the share of a numeric column's missing values that is an alert.",
        flag=None, gt=0.0, le=1.0, shown_default="none",
    )  # fmt: skip
    new_categories: float | None = key(
        None, "New categories of a column, divided by rows, that are an alert.", flag=None, gt=0.0,
        le=1.0, shown_default="none",
    )  # fmt: skip

    @property
    def of_columns(self) -> bool:
        """Whether windows of rows are compared."""
        return (self.mean, self.null_rate, self.new_categories) != (None, None, None)

    @property
    def watches(self) -> bool:
        """Whether there are any alerts."""
        return self.loss or self.of_columns
