# streamomd with its default rule: lists of coordinates and values. Arguments: folder of Parquet, where the model goes.
python -m streamomd train "$1" --label y --set 'data.sparse={indices="i", values="v", size=262144}' --checkpoint "$2" --json $MORE
