# Vowpal Wabbit: its binary cache, made from the text when there is none.
python -m vowpalwabbit -d "$1" --cache_file "$1.cache" --loss_function logistic -f "$2" $MORE
