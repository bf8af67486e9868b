"""Labels changed in place: the file keeps its size, its footer and its time."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def flip(path: Path, group: int = 0, column: str = "y") -> None:
    """Change the last byte of a column chunk, or of a record batch's last value."""
    before = os.stat(path)
    at = last_byte(path, group, column)
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = os.stat(path)
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def last_byte(path: Path, group: int, column: str) -> int:
    """Where it is; of a plain integer it is the highest byte."""
    if path.suffix == ".parquet":
        metadata = pq.read_metadata(str(path)).row_group(group)
        chunks = [metadata.column(i) for i in range(metadata.num_columns)]
        chunk = next(one for one in chunks if one.path_in_schema == column)
        begins = [chunk.dictionary_page_offset, chunk.data_page_offset]
        return min(at for at in begins if at) + chunk.total_compressed_size - 1
    values = b"".join(_values(path, group, column))
    data = path.read_bytes()
    assert data.count(values) == 1
    return data.index(values) + len(values) - 8


def _values(path: Path, group: int, column: str) -> list[bytes]:
    with pa.ipc.open_file(str(path)) as reader:
        array = reader.get_batch(group).column(column)
    return [array.buffers()[1].to_pybytes()[: 8 * len(array)]]
