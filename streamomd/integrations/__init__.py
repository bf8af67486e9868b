"""Other programs: scikit-learn, exported models, experiment trackers."""
