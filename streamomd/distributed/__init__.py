"""Training with a Dask cluster. Nothing here is imported until a cluster is used."""
