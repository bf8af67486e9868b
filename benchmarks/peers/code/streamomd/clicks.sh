# streamomd: numbers and strings, hashed. Arguments: folder of Parquet, where the model goes.
python -m streamomd train "$1" --label y --rule nag --set data.nulls=zero --checkpoint "$2" --json $MORE
