"""Text files (CSV, svmlight, Vowpal Wabbit) converted to shards."""
