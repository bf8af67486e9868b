"""A scorer as one file: a zip archive of a JSON description and arrays, without pickle.

It is checked before it is used: sizes and types of all arrays, and every value of the description.
"""

from __future__ import annotations

import io
import json
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.core.errors import DataError, InputNotFoundError, StorageError
from streamomd.core.platform_calls import replace
from streamomd.training.scoring.description import Description
from streamomd.training.scoring.link import Link
from streamomd.training.scoring.margins import Margins, Weights

FORMAT, VERSION = "streamomd scorer", 1
DESCRIPTION = "scorer.json"
FREE_BYTES, MOST_RATIO = 64 << 20, 100
"""What arrays may take: bytes of any file, and more for each byte of the file."""
MOST_JSON = 16 << 20
MOST_LEARNERS = 1 << 16

Arrays = dict[str, NDArray[Any]]
_DTYPES = {"float64": np.dtype("<f8"), "int64": np.dtype("<i8")}


def scorer_bytes(description: Description, margins: Margins, link: Link) -> bytes:
    """A scorer as the bytes of a file, the same for equal scorers."""
    arrays, more = _arrays_of(margins)
    head = {
        "format": FORMAT,
        "version": VERSION,
        "columns": description.to_json(),
        "link": link.to_json(),
        "margins": more,
        "arrays": {name: [array.dtype.name, *array.shape] for name, array in arrays.items()},
    }
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        write_member(archive, DESCRIPTION, json.dumps(head).encode())
        for name, array in arrays.items():
            little = np.ascontiguousarray(array, _DTYPES[array.dtype.name])
            write_member(archive, f"{name}.bin", little.tobytes())
    return made.getvalue()


def write_scorer(path: str | os.PathLike[str], content: bytes) -> None:
    """Write the file: it is complete under its name, or it is not there."""
    target = Path(path)
    made = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        made.write_bytes(content)
        replace(made, target)
    except OSError as error:
        raise StorageError(f"the scorer cannot be written to {target}: {error}") from error
    finally:
        made.unlink(missing_ok=True)


def write_member(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    """Add a file to an archive."""
    info = zipfile.ZipInfo(name)  # of 1980: no time of writing
    archive.writestr(info, content, zipfile.ZIP_DEFLATED, compresslevel=1)


def read_scorer(path: str | os.PathLike[str]) -> tuple[Description, Margins, Link]:
    """A scorer's parts. Raises InputNotFoundError without a file, DataError for any other file."""
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError as error:
        raise InputNotFoundError(f"no scorer at {path}: Scorer.save(path) writes one") from error
    except OSError as error:
        raise DataError(f"the scorer {path} cannot be read: {error}") from error
    return parts_of_bytes(content, str(path))


def parts_of_bytes(content: bytes, where: str) -> tuple[Description, Margins, Link]:
    """A scorer's parts of the bytes of its file. Raises DataError, which begins with where."""
    try:
        return _read(content)
    except DataError as error:
        raise DataError(f"{where}: {error}") from None
    except (
        zipfile.BadZipFile, zlib.error, struct.error, EOFError, KeyError, TypeError, ValueError,
        AttributeError, OverflowError, MemoryError, RuntimeError,
    ) as error:  # fmt: skip
        problem = f"{type(error).__name__}: {error}"
        raise DataError(
            f"{where} is not a scorer of this version ({problem}): write it again with Scorer.save"
        ) from None


def _read(given: bytes) -> tuple[Description, Margins, Link]:
    with zipfile.ZipFile(io.BytesIO(given)) as archive:
        head = json.loads(_member(archive, DESCRIPTION, MOST_JSON))
        if not isinstance(head, dict) or head.get("format") != FORMAT:
            raise DataError("it is not a scorer: Scorer.save(path) writes one")
        if head["version"] != VERSION:
            raise DataError(
                f"it is a scorer of version {head['version']!r}, expected {VERSION}: load it with "
                "the streamomd that wrote it, or save the model's scorer again"
            )
        description, link = Description.from_json(head["columns"]), Link.from_json(head["link"])
        more = head["margins"]
        learners = more["learners"]
        if type(learners) is not int or not 1 <= learners <= MOST_LEARNERS:
            raise DataError(f"it has {learners!r} learners")
        shapes = dict(head["arrays"])
        _refuse_inflated(shapes, len(given))
        arrays = {name: _array(archive, name, *shape) for name, shape in shapes.items()}
    margins = _margins_of(description, arrays, more)
    link.check(margins.learners)
    return description, margins, link


def _refuse_inflated(shapes: Mapping[str, Any], packed: int) -> None:
    """Raises DataError for arrays that would take much more memory than their file has bytes.

    Those of a model are hardly compressible: coordinates whose weights are 0 are omitted.
    """
    numbers = sum(math.prod(shape) for _, *shape in shapes.values())
    if numbers * 8 > FREE_BYTES + MOST_RATIO * packed:
        raise DataError(f"its arrays claim {numbers * 8:,} bytes, and the file has {packed:,}")


def _member(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """A member of at most ``most`` bytes, whatever the archive claims."""
    with archive.open(name) as stream:
        found = stream.read(most + 1)
    if len(found) > most:
        raise DataError(f"{name} has more than {most:,} bytes")
    return found


def _array(archive: zipfile.ZipFile, name: str, dtype: str, *shape: int) -> NDArray[Any]:
    if any(type(n) is not int or n < 0 for n in shape):
        raise DataError(f"array {name!r} of shape {shape}")
    size = math.prod(shape) * 8
    if archive.getinfo(f"{name}.bin").file_size != size:
        raise DataError(f"array {name!r} does not have {size:,} bytes")
    found = np.frombuffer(_member(archive, f"{name}.bin", size), _DTYPES[dtype])
    made = found.astype(found.dtype.newbyteorder("=")).reshape(shape)
    if made.dtype.kind == "f" and not np.isfinite(made).all():
        raise DataError(f"array {name!r} has numbers that are not finite")
    return made


def _arrays_of(margins: Margins) -> tuple[Arrays, dict[str, Any]]:
    """The arrays of margins by name, and the rest."""
    arrays: Arrays = {"weights": margins.weights.numbers, "start": np.array(margins.start)}
    if margins.weights.coordinates is not None:
        arrays["coordinates"] = margins.weights.coordinates
    if margins.reference is not None:
        arrays["reference"] = margins.reference
    for name in ("target", "fill", "centres"):
        numbers = getattr(margins, name)
        if numbers:
            arrays[name] = np.array(numbers, np.float64)
    more: dict[str, Any] = {"learners": margins.learners}
    if margins.rule is not None:
        of_rule, described = margins.rule.saved()
        arrays |= of_rule
        more["rule"] = described
    return arrays, more


def _margins_of(d: Description, arrays: Mapping[str, Any], more: Mapping[str, Any]) -> Margins:
    """Margins of arrays whose shapes fit the description."""
    learners, dense = more["learners"], d.vector_offset - int(d.bias)
    numbers = d.hashed_offset - int(d.bias)
    rule = more.get("rule")
    weights = arrays["weights"]
    rows = len(arrays["coordinates"]) if "coordinates" in arrays else d.size
    shapes = {
        "weights": (rows, learners),
        "start": (learners,),
        "coordinates": (rows,),
        "target": (2,),
        "fill": (numbers,),
        "centres": (numbers,),
    }
    for name, array in arrays.items():
        if name in shapes and array.shape != shapes[name]:
            raise DataError(f"array {name!r} has shape {array.shape}, expected {shapes[name]}")
    coordinates = arrays.get("coordinates")
    if coordinates is not None:
        coordinates = ascending(coordinates, d.size)
    reference = arrays.get("reference")
    if reference is not None and (reference.ndim != 2 or not _fits(reference, dense, numbers)):
        raise DataError(f"array 'reference' has shape {reference.shape}")
    measured: list[Any] = [*d.numbers, *d.vectors]
    if any(column.nulls == "mean" for column in measured) and "fill" not in arrays:
        raise DataError("array 'fill' is missing")
    target = arrays.get("target")
    special = None
    if rule is not None:
        from streamomd.training.scoring.margins import RuleMargins  # late: of few rules

        special = RuleMargins.restored(rule, d.bias, d.size, learners, arrays)
    return Margins(
        d.bias,
        Weights(d.size, weights, coordinates),
        tuple(arrays["start"].tolist()),
        reference,
        None if target is None else (float(target[0]), float(target[1])),
        tuple(arrays["fill"].tolist()) if "fill" in arrays else (),
        tuple(arrays["centres"].tolist()) if "centres" in arrays else (),
        special,
    )


def _fits(reference: Any, dense: int, numbers: int) -> bool:
    return bool(len(reference) == 2 and reference.shape[1] in (0, dense, numbers))


def ascending(coordinates: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Coordinates that ascend, below size. Raises DataError for others."""
    outside = len(coordinates) and not (coordinates[0] >= 0 and coordinates[-1] < size)
    if coordinates.dtype != np.int64 or outside or (np.diff(coordinates) <= 0).any():
        raise DataError(f"coordinates do not ascend below {size:,}")
    return coordinates
