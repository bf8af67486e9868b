"""State versions: which saved states of a rule can be resumed, and why others cannot."""

from __future__ import annotations

from streamomd.core.errors import CorruptionError, NoCommitError
from streamomd.rules.contract import Rule, Saved


def refuse_other_state(rule: Rule, saved: Saved) -> None:
    """Raise NoCommitError for a state of a newer version or an older one that cannot be converted,
    CorruptionError for what is no version.

    An accepted older state has the numbers of the current version, to the last bit.
    """
    found, known = saved.version, rule.state.version
    if type(found) is not int or found < 1:
        raise CorruptionError(f"state version {found!r} of rule {rule.name!r}: expected 1 or more")
    if found > known:
        raise NoCommitError(
            f"a state of rule {rule.name!r} of version {found}; this streamomd knows version "
            f"{known}: upgrade streamomd"
        )
    reason = rule.state.older(saved) if found < known else ""
    if reason:
        raise NoCommitError(
            f"a state of rule {rule.name!r} of version {found}, where {reason}; this streamomd "
            f"has version {known} and cannot convert it: train again, or continue with the "
            "streamomd that wrote it"
        )
