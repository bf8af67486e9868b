# streamomd: a column of texts. Arguments: folder of Parquet, where the model goes.
python -m streamomd train "$1" --label y --rule nag --set 'data.text=["text"]' --checkpoint "$2" --json $MORE
