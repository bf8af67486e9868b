# streamomd with its default rule: numbers and strings, hashed. Arguments: folder of Parquet, where the model goes.
python -m streamomd train "$1" --label y --set data.nulls=zero --checkpoint "$2" --json $MORE
