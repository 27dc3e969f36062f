"""The tasks, each a subpackage with its options, data, model and metrics.

Tasks do not import each other.
"""
