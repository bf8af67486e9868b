"""dask-ml: a Dask DataFrame's numbers through StandardScaler, Incremental over the partitions."""

import sys
from pathlib import Path

import dask.dataframe as dd
import joblib
import pandas as pd
from dask_ml.preprocessing import StandardScaler
from dask_ml.wrappers import Incremental
from sklearn.linear_model import SGDClassifier

frame = dd.from_map(lambda path: pd.read_parquet(path), sorted(Path(sys.argv[1]).iterdir()))
X = StandardScaler().fit_transform(
    frame.drop(columns="y").astype(float).to_dask_array(lengths=True)
)
y = frame["y"].to_dask_array(lengths=True)
model = Incremental(SGDClassifier(loss="log_loss"), shuffle_blocks=False)
model.fit(X, y, classes=[0, 1])
joblib.dump(model.estimator_, sys.argv[2])
