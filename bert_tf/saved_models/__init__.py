"""Trained models as SavedModels, which need none of this package's code."""
