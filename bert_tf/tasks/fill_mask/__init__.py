"""Masked word prediction (fill-mask)."""
