"""Benchmarks that are run by hand: speed, memory, accuracy, and recovery of killed runs."""
