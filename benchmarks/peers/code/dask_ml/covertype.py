"""dask-ml: a Dask DataFrame's numbers through StandardScaler, Incremental over the partitions."""

import sys

import dask.dataframe as dd
import joblib
from dask_ml.preprocessing import StandardScaler
from dask_ml.wrappers import Incremental
from sklearn.linear_model import SGDClassifier

frame = dd.read_parquet(sys.argv[1], split_row_groups=True).astype(float)
X = StandardScaler().fit_transform(frame.drop(columns="y").to_dask_array(lengths=True))
y = frame["y"].to_dask_array(lengths=True).astype(int)
model = Incremental(SGDClassifier(loss="log_loss"), shuffle_blocks=False)
model.fit(X, y, classes=[0, 1])
joblib.dump(model.estimator_, sys.argv[2])
