"""What programs import from the original's scripts, with its names, signatures and results."""
