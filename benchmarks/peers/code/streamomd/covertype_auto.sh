# streamomd with its default rule: numbers in raw units. Arguments: folder of Parquet, where the model goes.
python -m streamomd train "$1" --label y --checkpoint "$2" --json $MORE
