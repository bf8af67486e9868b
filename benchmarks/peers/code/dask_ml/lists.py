"""dask-ml: a CSR block a row group, Incremental over the blocks."""

import sys
from pathlib import Path

import dask
import dask.array as da
import joblib
import pyarrow.parquet as pq
from dask_ml.wrappers import Incremental
from scipy.sparse import csr_matrix
from sklearn.linear_model import SGDClassifier


@dask.delayed
def rows(path, group):
    table = pq.ParquetFile(path).read_row_group(group).combine_chunks()
    i, v = table["i"].chunk(0), table["v"].chunk(0)
    found = (v.flatten().to_numpy(), i.flatten().to_numpy(), i.offsets.to_numpy())
    return csr_matrix(found, shape=(len(i), 1 << 18)), table["y"].to_numpy()


X, y = [], []
for path in sorted(Path(sys.argv[1]).iterdir()):
    metadata = pq.read_metadata(path)
    for group in range(metadata.num_row_groups):
        count, block = metadata.row_group(group).num_rows, rows(path, group)
        X.append(da.from_delayed(block[0], (count, 1 << 18), "f4", meta=csr_matrix((0, 0))))
        y.append(da.from_delayed(block[1], (count,), "i1"))
model = Incremental(SGDClassifier(loss="log_loss"), shuffle_blocks=False)
model.fit(da.concatenate(X), da.concatenate(y), classes=[0, 1])
joblib.dump(model.estimator_, sys.argv[2])
