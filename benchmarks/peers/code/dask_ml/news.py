"""dask-ml: a Dask DataFrame's texts through HashingVectorizer, Incremental over the partitions."""

import sys

import dask.dataframe as dd
import joblib
from dask_ml.feature_extraction.text import HashingVectorizer
from dask_ml.wrappers import Incremental
from sklearn.linear_model import SGDClassifier

frame = dd.read_parquet(sys.argv[1], split_row_groups=True)
vectorizer = HashingVectorizer(n_features=1 << 18, alternate_sign=False)
X = vectorizer.transform(frame["text"].to_bag())
model = Incremental(SGDClassifier(loss="log_loss"), shuffle_blocks=False, assume_equal_chunks=True)
model.fit(X, frame["y"].to_dask_array(), classes=[0, 1])
joblib.dump(model.estimator_, sys.argv[2])
