"""Python APIs of the original BERT scripts, with the same names, signatures and results."""
