"""Exports of trained models."""
