"""scikit-learn: CSR from lists of coordinates and values, partial_fit a batch at a time."""

import json
import sys
from pathlib import Path

import joblib
import numpy as np
import pyarrow.parquet as pq
from scipy.sparse import csr_matrix
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss

model = SGDClassifier(loss="log_loss", **json.loads(sys.argv[3]))
total = rows = 0
for path in sorted(Path(sys.argv[1]).iterdir()):
    for batch in pq.ParquetFile(path).iter_batches(batch_size=1000):
        i, v, y = batch["i"], batch["v"], batch["y"].to_numpy()
        indptr = i.offsets.to_numpy() - i.offsets[0].as_py()
        found = (v.flatten().to_numpy(), i.flatten().to_numpy(), indptr)
        X = csr_matrix(found, shape=(len(y), 1 << 18))
        if rows:
            total += log_loss(y, model.predict_proba(X), normalize=False, labels=[0, 1])
        else:
            total += len(y) * np.log(2)
        model.partial_fit(X, y, classes=[0, 1])
        rows += len(y)
joblib.dump(model, sys.argv[2])
print("rows", rows, "progressive loss", total / rows)
