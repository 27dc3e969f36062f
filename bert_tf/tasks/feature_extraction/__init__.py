"""Extraction of contextual features of tokens or texts, with a trained encoder."""
