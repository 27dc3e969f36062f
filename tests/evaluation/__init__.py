"""Figures and decoding."""
