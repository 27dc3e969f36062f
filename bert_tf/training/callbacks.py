"""The interface of training loop callbacks."""

from collections.abc import Mapping


class Callback:
    """Base class of objects that the training loop calls; they may evaluate and stop training."""

    def on_step(self, step: int, results: Mapping[str, float]) -> None:
        """Called after each step, from 1 on, with the values that the training step returned."""

    def on_checkpoint(self) -> None:
        """Called on the chief when the loop saves a checkpoint."""

    def is_due(self, step: int, is_last_step: bool) -> bool:
        """Returns whether to evaluate at this step; must agree in all processes."""
        return False

    def evaluate(self, step: int) -> bool:
        """Evaluates; returns whether to stop training, which must agree in all processes."""
        return False

    def close(self) -> None:
        """Called once when training ends, even after an error."""
