"""Writes trained models as SavedModels, which run without this package."""
