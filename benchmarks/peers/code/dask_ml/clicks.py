"""dask-ml: a Dask DataFrame's strings through FeatureHasher, Incremental over the partitions."""

import sys
from pathlib import Path

import dask.dataframe as dd
import joblib
import pandas as pd
from dask_ml.feature_extraction.text import FeatureHasher
from dask_ml.wrappers import Incremental
from sklearn.linear_model import SGDClassifier

NUMBERS = [f"I{at}" for at in range(1, 14)]
CATEGORIES = [f"C{at}" for at in range(1, 27)]


def features(frame):
    numbers = frame[NUMBERS].fillna(0).to_dict("records")
    texts = frame[CATEGORIES].to_dict("records")
    return [row | {f"{name}={value}": 1 for name, value in text.items()}
            for row, text in zip(numbers, texts, strict=True)]  # fmt: skip


frame = dd.from_map(lambda path: pd.read_parquet(path), sorted(Path(sys.argv[1]).iterdir()))
X = FeatureHasher(n_features=1 << 18).transform(
    frame.to_bag(format="frame").map_partitions(features)
)
model = Incremental(SGDClassifier(loss="log_loss"), shuffle_blocks=False, assume_equal_chunks=True)
model.fit(X, frame["y"].to_dask_array(), classes=[0, 1])
joblib.dump(model.estimator_, sys.argv[2])
