# streamomd with its default rule: a column of texts. Arguments: folder of Parquet, where the model goes.
python -m streamomd train "$1" --label y --set 'data.text=["text"]' --checkpoint "$2" --json $MORE
