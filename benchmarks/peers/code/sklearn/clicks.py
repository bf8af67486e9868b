"""scikit-learn: strings through FeatureHasher, scaled numbers, partial_fit a batch at a time."""

import json
import sys
from pathlib import Path

import joblib
import numpy as np
import pyarrow.parquet as pq
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction import FeatureHasher
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler

NUMBERS = [f"I{at}" for at in range(1, 14)]
CATEGORIES = [f"C{at}" for at in range(1, 27)]
hasher = FeatureHasher(n_features=1 << 18, input_type="string")
scaler = StandardScaler()
model = SGDClassifier(loss="log_loss", **json.loads(sys.argv[3]))
total = rows = 0
for path in sorted(Path(sys.argv[1]).iterdir()):
    for batch in pq.ParquetFile(path).iter_batches(batch_size=1000):
        frame = batch.to_pandas()
        y = frame["y"].to_numpy()
        numbers = frame[NUMBERS].fillna(0)
        named = frame[CATEGORIES].to_dict("records")
        texts = ([f"{name}={value}" for name, value in row.items()] for row in named)
        scaled = csr_matrix(scaler.partial_fit(numbers).transform(numbers))
        X = hstack([scaled, hasher.transform(texts)], format="csr")
        if rows:
            total += log_loss(y, model.predict_proba(X), normalize=False, labels=[0, 1])
        else:
            total += len(y) * np.log(2)
        model.partial_fit(X, y, classes=[0, 1])
        rows += len(y)
joblib.dump(model, sys.argv[2])
print("rows", rows, "progressive loss", total / rows)
