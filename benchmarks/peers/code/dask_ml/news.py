"""dask-ml: a Dask DataFrame's texts through HashingVectorizer, Incremental over the partitions."""

import sys
from pathlib import Path

import dask.dataframe as dd
import joblib
import pandas as pd
from dask_ml.feature_extraction.text import HashingVectorizer
from dask_ml.wrappers import Incremental
from sklearn.linear_model import SGDClassifier

frame = dd.from_map(lambda path: pd.read_parquet(path), sorted(Path(sys.argv[1]).iterdir()))
vectorizer = HashingVectorizer(n_features=1 << 18, alternate_sign=False)
X = vectorizer.transform(frame["text"].to_bag())
model = Incremental(SGDClassifier(loss="log_loss"), shuffle_blocks=False, assume_equal_chunks=True)
model.fit(X, frame["y"].to_dask_array(), classes=[0, 1])
joblib.dump(model.estimator_, sys.argv[2])
