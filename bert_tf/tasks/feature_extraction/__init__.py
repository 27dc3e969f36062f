"""Vectors of tokens and texts."""
