"""Matrix steps of the full-matrix rules: projections, roots, rotations."""
