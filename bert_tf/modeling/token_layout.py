"""Layouts of a batch's tokens in the encoder: [T, H], with or without padding.

Only attention needs whole sequences. Everything else processes tokens independently and can skip
padding, which is a third of a batch in MRPC: sequences have 53 tokens on average, but the longest
in a batch of 32 has about 80. For the letters in shapes, see `layers.py`.
"""

from typing import Any

from keras import ops

from bert_tf.modeling.gradients import get_upstream


class PaddedLayout:
    """All tokens of a batch, including padding: T = B * S; `input_mask` is [B, S]."""

    def __init__(self, input_mask: Any, num_heads: int) -> None:
        self.batch_shape = ops.shape(input_mask)[:2]  # (B, S)
        self.num_heads = num_heads

    def unpad(self, x: Any) -> Any:
        """[B, S, H] -> [T, H]."""
        return ops.reshape(x, (-1, x.shape[-1]))

    def pad(self, x: Any) -> Any:
        """[T, H] -> [B, S, H]."""
        return ops.reshape(x, (*self.batch_shape, x.shape[-1]))

    def split_heads(self, x: Any) -> Any:
        """[T, H] -> [B, N, S, D]."""
        shape = (*self.batch_shape, self.num_heads, x.shape[-1] // self.num_heads)
        return ops.transpose(ops.reshape(x, shape), (0, 2, 1, 3))

    def merge_heads(self, x: Any) -> Any:
        """[B, N, S, D] -> [T, H]."""
        return ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (-1, self.num_heads * x.shape[-1]))


class UnpaddedLayout(PaddedLayout):
    """The tokens of a batch without padding.

    `token_positions`, int32 [T] with T > 0, are the ascending positions of the tokens in the
    flattened batch [B * S].
    """

    def __init__(self, input_mask: Any, num_heads: int, token_positions: Any) -> None:
        super().__init__(input_mask, num_heads)
        size = (self.batch_shape[0] * self.batch_shape[1],)
        self.positions = ops.cast(token_positions, "int32")
        indices = ops.arange(ops.shape(self.positions)[0], dtype="int32")
        # Index of the token at each position [B * S]; 0 for padding, whose values are masked.
        self.token_indices = ops.scatter(self.positions[:, None], indices, size)
        self.is_token = ops.scatter(self.positions[:, None], ops.ones_like(indices), size)[:, None]

    def unpad(self, x: Any) -> Any:
        """[B, S, H] -> [T, H]."""
        return _gather_rows(super().unpad(x), self.positions, self.token_indices, self.is_token)

    def pad(self, x: Any) -> Any:
        """[T, H] -> [B, S, H], with zeros for padding."""
        return super().pad(self._scatter(x) * ops.cast(self.is_token, x.dtype))

    def split_heads(self, x: Any) -> Any:
        """[T, H] -> [B, N, S, D]; padding has arbitrary values, which the attention mask hides."""
        return super().split_heads(self._scatter(x))

    def merge_heads(self, x: Any) -> Any:
        """[B, N, S, D] -> [T, H]."""
        merged = super().merge_heads(x)
        return _gather_rows(merged, self.positions, self.token_indices, self.is_token)

    def _scatter(self, x: Any) -> Any:
        return _gather_rows(x, self.token_indices, self.positions)  # [T, H] -> [B * S, H]


def _gather_rows(x: Any, indices: Any, inverse: Any, mask: Any = None) -> Any:
    """Gathers the rows `indices` of `x`; the gradient gathers the rows `inverse`, times `mask`.

    TensorFlow's own gradient is slower: it scatters and sums, because `indices` could repeat a row.
    Here, no token is repeated.
    """

    @ops.custom_gradient
    def run(x: Any) -> Any:
        def gradient(*arguments: Any, upstream: Any = None) -> Any:
            dx = ops.take(get_upstream(arguments, upstream), inverse, axis=0)
            return dx if mask is None else dx * ops.cast(mask, dx.dtype)

        return ops.take(x, indices, axis=0), gradient

    return run(x)
