"""Python APIs of the original's scripts, with the same names, signatures and results."""
