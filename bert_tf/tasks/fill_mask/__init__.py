"""Words for [MASK]."""
