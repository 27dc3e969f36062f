"""The tasks, each a subpackage with options, data, model and metrics; none imports another."""
