"""When an older commit is loaded, and when it must not be."""

from __future__ import annotations

import json

import pytest
from checkpoint_helpers import DictStore, a_run, begin, holds, load_all

from streamomd.checkpoint import Writer, list_commits
from streamomd.checkpoint.manifest import manifest_name
from streamomd.checkpoint.sealed_json import seal
from streamomd.core.errors import NoCommitError, StorageError

NEWEST = manifest_name(1)


@pytest.fixture
def store() -> DictStore:
    """Commits 0 and 1."""
    made = DictStore()
    a_run(made, 1)
    return made


def part_names(store: DictStore, sequence: int = 1) -> list[str]:
    return sorted(name for name in store.objects if name.startswith(f"data/{sequence:012d}-"))


def test_a_later_part_that_is_damaged_begins_afresh(store: DictStore) -> None:
    """What was received of a commit before its damage showed is no part of what is loaded."""
    name = part_names(store)[1]
    del store.objects[name]
    assert holds(store, 0, rejected=[1]).rejected[0][1] == f"{name} is missing"


def test_a_missing_manifest_in_the_middle_is_told(store: DictStore) -> None:
    """With commit 3 damaged and manifest 2 gone, both are told and an older one is loaded."""
    writer = Writer.take_over(store, load_all(store)[0])
    assert writer.commit({"rows": 20}, []).sequence == 3
    del store.objects[manifest_name(1)]
    del store.objects[manifest_name(2)]
    store.objects[manifest_name(3)] = b"{}\n"
    holds(store, 0, rejected=[3, 2])


def test_a_gap_is_listed() -> None:
    """A manifest that is missing between two of a run is listed as a problem."""
    store = DictStore()
    a_run(store, 3, keep=9)
    del store.objects[manifest_name(2)]
    told = [(one["sequence"], one["ok"], one["problem"]) for one in list_commits(store)]
    assert told[2] == (2, False, "its manifest is missing")
    assert [ok for _, ok, _ in told] == [True, True, False, True]


def test_a_commit_that_a_listing_does_not_show_yet_is_found(store: DictStore) -> None:
    """The next sequence is asked for by name, however late the listing is."""
    listed = store.names("commits/")[:1]
    store.names = lambda folder: listed  # type: ignore[method-assign]
    holds(store, 1)


def test_another_run_is_not_fallen_back_to(store: DictStore) -> None:
    """After a restart, a damaged commit does not lead back to the run before."""
    begin(store, restart=True)
    del store.objects[part_names(store, 2)[0]]
    with pytest.raises(NoCommitError, match="of an earlier run"):
        load_all(store)


def test_going_on_after_a_fall_back(store: DictStore) -> None:
    """The run goes on from the older commit at a number of its own; the damaged one stays."""
    del store.objects[part_names(store)[0]]
    writer = Writer.take_over(store, holds(store, 0, rejected=[1]))
    again = holds(store, 0).commit
    assert (again.sequence, again.parent) == (2, 0)
    assert writer.commit({"rows": 10}, []).sequence == 3
    assert [one["ok"] for one in list_commits(store, deep=True)] == [True, False, True, True]


@pytest.mark.parametrize("deed", ["read", "size", "names"])
def test_a_store_that_does_not_answer_is_no_corruption(store: DictStore, deed: str) -> None:
    """A store's error anywhere in loading is passed on and never leads to an older commit."""
    count = [0]

    def counting(what: str, name: str) -> None:
        count[0] += what == deed

    store.before = counting
    load_all(store)
    for fails_at in range(count[0]):
        left = [fails_at]

        def failing(what: str, name: str, left: list[int] = left) -> None:
            left[0] -= what == deed
            if what == deed and left[0] == -1:
                raise StorageError("503 Slow Down")

        store.before = failing
        with pytest.raises(StorageError, match="503"):
            load_all(store)
    assert count[0] > 0


@pytest.mark.parametrize("name", [NEWEST, "FORMAT.json"])
@pytest.mark.parametrize("feature", [False, True])
def test_a_newer_format_is_refused_not_skipped(store: DictStore, name: str, feature: bool) -> None:
    """What a newer streamomd wrote stops loading, and tells to upgrade."""
    fields = json.loads(store.objects[name].split(b"\n")[0])
    fields["versions"] = {"streamomd": "7.1"}
    if feature:
        fields["required_features"] = ["sparse-parts"]
    else:
        fields["format"]["major"] = 2
    store.objects[name] = seal(fields)
    with pytest.raises(NoCommitError, match=r"newer streamomd 7\.1 .*: upgrade"):
        load_all(store)


def test_unknown_optional_keys_are_ignored(store: DictStore) -> None:
    """A later minor version may add keys."""
    fields = json.loads(store.objects[NEWEST].split(b"\n")[0])
    fields |= {"colour": "blue", "format": fields["format"] | {"minor": 9}}
    store.objects[NEWEST] = seal(fields)
    holds(store, 1)


def test_an_object_that_vanishes_while_it_is_read_is_missing(store: DictStore) -> None:
    """Between its size and its bytes a part may be deleted: then the commit is rejected."""
    name = part_names(store)[0]

    def vanish(deed: str, which: str) -> None:
        if (deed, which) == ("read", name):
            store.objects.pop(name, None)

    store.before = vanish
    holds(store, 0, rejected=[1])
