"""Prediction of masked words."""
