"""Training and prediction on Dask DataFrames and arrays."""
