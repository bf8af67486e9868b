"""LightGBM: all rows in memory, 100 trees; the loss of the last tenth, which is not learned."""

import sys
from pathlib import Path

import lightgbm as lgb
import pyarrow.parquet as pq

table = pq.read_table(Path(sys.argv[1]))
y = table["y"].to_numpy()
X = table.drop_columns(["y"]).to_pandas()
cut = len(y) * 9 // 10
train = lgb.Dataset(X[:cut], y[:cut])
valid = lgb.Dataset(X[cut:], y[cut:], reference=train)
model = lgb.train({"objective": "binary"}, train, 100, valid_sets=[valid])
model.save_model(sys.argv[2])
print("rows", len(y), "loss of the last tenth", model.best_score["valid_0"]["binary_logloss"])
