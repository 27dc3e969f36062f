"""Input files, features, records and input pipelines."""
