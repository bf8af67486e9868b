"""Files of apache/parquet-testing and apache/arrow-testing, through plan, train and convert."""

from __future__ import annotations

import pytest
from public_suites import FOLDERS, SUITES, files, violations

pytestmark = pytest.mark.skipif(
    not all((SUITES / folder).is_dir() for folder in FOLDERS),
    reason="needs apache/parquet-testing and apache/arrow-testing in ../shared/suites",
)

ONCE_WRONG = (
    "arrow-testing/data/parquet/ARROW-17100.parquet",
    "parquet-testing/data/hadoop_lz4_compressed.parquet",
    "parquet-testing/data/hadoop_lz4_compressed_larger.parquet",
    "parquet-testing/data/non_hadoop_lz4_compressed.parquet",
    "parquet-testing/data/column_chunk_key_value_metadata.parquet",
    "arrow-testing/data/arrow-ipc-stream/integration/cpp-21.0.0/"
    "generated_duplicate_fieldnames.stream",
    "arrow-testing/data/csv/fuzzing/clusterfuzz-testcase-minimized-arrow-csv-fuzz-4523557272223744",
)


@pytest.mark.slow
def test_files_that_were_once_wrong() -> None:
    """pyarrow's values, or an error of streamomd's that names the file."""
    assert list(violations(ONCE_WRONG)) == []


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_all_files() -> None:
    """Of every file: pyarrow's values or an error of streamomd's that names it; no traceback, no
    signal, less than 20 s for each command, less than 1 GB."""
    found = files()
    assert len(found) > 500
    assert list(violations(found)) == []
