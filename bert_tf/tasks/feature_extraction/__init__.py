"""Extraction of contextual features."""
