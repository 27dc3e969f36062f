"""Errors, files, locks, progress, signals: what everything else uses. It knows no BERT."""
