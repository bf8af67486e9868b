"""Arrow columns to coordinates: a plan made once, and record batches encoded by it."""

from streamomd.features.encode import empty_batch, encode
from streamomd.features.infer_plan import limits_of, make_plan
from streamomd.features.labels import decode_labels
from streamomd.features.names import Names, name_of
from streamomd.features.plan import Plan
from streamomd.features.plan_lines import describe
from streamomd.features.schema import check_schema
from streamomd.features.warm_kernels import kernels_compiled

__all__ = [
    "Names",
    "Plan",
    "check_schema",
    "decode_labels",
    "describe",
    "empty_batch",
    "encode",
    "kernels_compiled",
    "limits_of",
    "make_plan",
    "name_of",
]
