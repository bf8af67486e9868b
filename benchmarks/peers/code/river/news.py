"""river: words counted, a dict a row, predicted and then learned."""

import json
import pickle
import sys
from pathlib import Path

import pyarrow.parquet as pq
from river import evaluate, feature_extraction, linear_model, metrics, optim


def rows(folder):
    for path in sorted(Path(folder).iterdir()):
        for batch in pq.ParquetFile(path).iter_batches(batch_size=1000):
            for row in batch.to_pylist():
                yield row["text"], bool(row["y"])


given = json.loads(sys.argv[3])
learner = linear_model.LogisticRegression(
    **({"optimizer": optim.SGD(given["lr"])} if given else {})
)
model = feature_extraction.BagOfWords() | learner
loss = evaluate.progressive_val_score(rows(sys.argv[1]), model, metrics.LogLoss())
with open(sys.argv[2], "wb") as file:
    pickle.dump(model, file)
print("progressive loss", loss.get())
