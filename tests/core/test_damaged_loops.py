"""Files of numba's cache that a machine lost in a power failure."""

import shutil
from pathlib import Path

import numba
import pytest

from streamomd.core import jit


def twice(value: float) -> float:
    """A function to compile."""
    return 2.0 * value


@pytest.mark.parametrize("ending", ["nbc", "nbi"])
@pytest.mark.parametrize("size", [0, 200])
def test_a_damaged_file_is_compiled_again(
    ending: str, size: int, compiled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next process loads what this one has written."""
    shutil.copytree(compiled, tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    (file,) = tmp_path.rglob(f"*.{ending}")
    file.write_bytes(file.read_bytes()[:size])
    loaded = []
    for _ in range(2):
        with jit.recording() as found:
            assert jit.compile_cached(twice, (jit.float64,))(3.0) == 6.0
        loaded += [one.loaded for one in found]
    assert loaded == [False, True]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with one function."""
    folder = tmp_path_factory.mktemp("loops")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numba.config, "CACHE_DIR", str(folder))
        jit.compile_cached(twice, (jit.float64,))
    return folder
