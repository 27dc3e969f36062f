"""From outputs of a model to figures."""
