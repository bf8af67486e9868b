# Vowpal Wabbit: text, or text.gz. Arguments: data, where the model goes.
python -m vowpalwabbit -d "$1" --loss_function logistic -f "$2" $MORE
