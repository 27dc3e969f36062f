"""Conversion of checkpoints."""
