"""``core.data_class.dataclass`` makes the same classes as the standard library's."""

import copy
import dataclasses
import pickle
from dataclasses import field

import pytest

from streamomd.core import data_class
from streamomd.core.data_class import dataclass as ours

DECORATORS = {"standard": dataclasses.dataclass, "ours": ours}


def classes(decorator):
    """Classes that use each thing that our modules use."""

    @decorator
    class Plain:
        """Not frozen."""

        a: int
        b: list = field(default_factory=list)

    @decorator(frozen=True)
    class Frozen:
        """A default, and a secret."""

        a: int
        b: str = "x"
        c: str = field(default="secret", repr=False)

    @decorator(frozen=True, eq=False)
    class Identity:
        """Compared by identity."""

        a: int = 1

    @decorator(frozen=True)
    class Checked:
        """Values are validated, and one is made."""

        a: int
        b: tuple = ()

        def __post_init__(self):
            if self.a < 0:
                raise ValueError("negative")
            object.__setattr__(self, "b", (self.a,))

    @decorator(frozen=True)
    class Derived(Frozen):
        """A field more."""

        d: float = 0.5

    @decorator(frozen=True)
    class Own:
        """Methods of its own."""

        a: int = 3

        def __eq__(self, other):
            return isinstance(other, Own)

        def __repr__(self):
            return "own"

    @decorator(eq=False)
    class Empty:
        """No fields."""

    return {one.__name__: one for one in (Plain, Frozen, Identity, Checked, Derived, Own, Empty)}


ARGUMENTS = {
    "Plain": [((1,), {}), ((1, [2]), {}), ((), {"b": [3], "a": 1})],
    "Frozen": [((1,), {}), ((1, "y"), {"c": "z"}), ((), {"b": "y", "a": 2}), ((1, "x", "c"), {})],
    "Identity": [((), {}), ((2,), {})],
    "Checked": [((1,), {}), ((2,), {"b": (5,)})],
    "Derived": [((1,), {}), ((1, "y", "z", 2.0), {}), ((), {"d": 1.0, "a": 1})],
    "Own": [((), {}), ((4,), {})],
    "Empty": [((), {})],
}
REFUSED = {
    "Plain": [((), {}), ((1, [], 2), {}), ((1,), {"a": 2}), ((1,), {"z": 2})],
    "Frozen": [((), {"b": "x"}), ((1, "x"), {"b": "y"}), ((), {"a": 1, "A": 1})],
    "Identity": [((1, 2), {}), ((), {"b": 1})],
    "Empty": [((1,), {}), ((), {"a": 1})],
}


def described(decorator):
    """All that can be seen of the objects, in order."""
    made = classes(decorator)
    found = []
    for name, calls in ARGUMENTS.items():
        objects = [made[name](*args, **named) for args, named in calls]
        found += [name, made[name].__match_args__, made[name].__doc__]
        for one in objects:
            changes = {"a": 9} if dataclasses.fields(one) else {}
            text = repr(one) if name != "Identity" else ""
            found += [text.rpartition(".")[2], vars(one), dataclasses.asdict(one)]
            found += [vars(dataclasses.replace(one, **changes)), vars(copy.copy(one))]
            found += [[one == other for other in objects], one != objects[0], one == 1]
            found += [type(one).__hash__ is None]
            if name in ("Frozen", "Checked", "Derived"):
                found.append(hash(one))
    return found


def test_objects_are_those_of_the_standard_library():
    """Values, texts, comparisons, hashes, copies and the order of attributes are the same."""
    standard, found = (described(one) for one in DECORATORS.values())
    assert found == standard


@pytest.mark.parametrize("decorator", DECORATORS.values(), ids=DECORATORS)
def test_wrong_arguments_are_refused(decorator):
    """Missing, unknown, double and too many arguments are TypeErrors; frozen objects stay."""
    made = classes(decorator)
    for name, calls in REFUSED.items():
        for args, named in calls:
            with pytest.raises(TypeError):
                made[name](*args, **named)
    with pytest.raises(ValueError, match="negative"):
        made["Checked"](-1)
    for one in (made["Frozen"](1), made["Identity"]()):
        with pytest.raises(dataclasses.FrozenInstanceError):
            one.a = 2
        with pytest.raises(dataclasses.FrozenInstanceError):
            del one.a
    plain = made["Plain"](1)
    plain.a = 5
    assert (plain.a, made["Plain"](1).b is made["Plain"](1).b) == (5, False)
    with pytest.raises(TypeError, match="unhashable"):
        hash(plain)


@ours(frozen=True)
class Sent:
    """Goes to another process."""

    a: int
    b: str = field(default="b", repr=False)


def test_an_object_is_pickled():
    """Workers get the objects of a job by pickle."""
    assert pickle.loads(pickle.dumps(Sent(1, b="c"))) == Sent(1, b="c")


def test_without_shortcuts_it_is_the_standard_library_s(monkeypatch):
    """``STREAMOMD_FAST_START=0`` switches it off."""
    monkeypatch.setenv("STREAMOMD_FAST_START", "0")
    params = data_class.dataclass(frozen=True)(type("One", (), {"__annotations__": {"a": int}}))
    assert params.__dataclass_params__.frozen
    assert params(1) == params(1)
