"""scikit-learn: numbers through StandardScaler, partial_fit a batch at a time."""

import json
import sys
from pathlib import Path

import joblib
import numpy as np
import pyarrow.parquet as pq
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler

scaler = StandardScaler()
model = SGDClassifier(loss="log_loss", **json.loads(sys.argv[3]))
total = rows = 0
for path in sorted(Path(sys.argv[1]).iterdir()):
    for batch in pq.ParquetFile(path).iter_batches(batch_size=1000):
        frame = batch.to_pandas()
        y = frame.pop("y").to_numpy()
        X = scaler.partial_fit(frame).transform(frame)
        if rows:
            total += log_loss(y, model.predict_proba(X), normalize=False, labels=[0, 1])
        else:
            total += len(y) * np.log(2)
        model.partial_fit(X, y, classes=[0, 1])
        rows += len(y)
joblib.dump(model, sys.argv[2])
print("rows", rows, "progressive loss", total / rows)
