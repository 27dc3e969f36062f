"""Layouts of a batch's tokens in the encoder: [T, H], with or without padding.

Only attention needs sequences; everything else processes tokens independently and can skip padding.
MRPC's sequences have 53 tokens on average, but the longest in a batch of 32 has about 80. Shape
letters: see `layers.py`.
"""

from typing import Any

from keras import ops

from bert_tf.modeling.gradients import get_upstream


class PaddedLayout:
    """All tokens of a batch, including padding: T = B * S; `input_mask` is [B, S]."""

    def __init__(self, input_mask: Any, num_heads: int) -> None:
        self.shape = ops.shape(input_mask)[:2]
        self.num_heads = num_heads

    def unpad(self, x: Any) -> Any:
        """[B, S, H] -> [T, H]."""
        return ops.reshape(x, (-1, x.shape[-1]))

    def pad(self, x: Any) -> Any:
        """[T, H] -> [B, S, H]."""
        return ops.reshape(x, (*self.shape, x.shape[-1]))

    def split_heads(self, x: Any) -> Any:
        """[T, H] -> [B, N, S, D]."""
        size = x.shape[-1] // self.num_heads
        return ops.transpose(ops.reshape(x, (*self.shape, self.num_heads, size)), (0, 2, 1, 3))

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
        size = (self.shape[0] * self.shape[1],)
        self.positions = ops.cast(token_positions, "int32")
        indices = ops.arange(ops.shape(self.positions)[0], dtype="int32")
        # The token index of each position; padding points to token 0, and is masked.
        self.tokens = ops.scatter(self.positions[:, None], indices, size)
        self.is_token = ops.scatter(self.positions[:, None], ops.ones_like(indices), size)[:, None]

    def unpad(self, x: Any) -> Any:
        """[B, S, H] -> [T, H]."""
        return _gather_rows(super().unpad(x), self.positions, self.tokens, self.is_token)

    def pad(self, x: Any) -> Any:
        """[T, H] -> [B, S, H], with zeros for padding."""
        return super().pad(self._spread(x) * ops.cast(self.is_token, x.dtype))

    def split_heads(self, x: Any) -> Any:
        """[T, H] -> [B, N, S, D]; padding has arbitrary values, which the attention mask hides."""
        return super().split_heads(self._spread(x))

    def merge_heads(self, x: Any) -> Any:
        """[B, N, S, D] -> [T, H]."""
        return _gather_rows(super().merge_heads(x), self.positions, self.tokens, self.is_token)

    def _spread(self, x: Any) -> Any:
        return _gather_rows(x, self.tokens, self.positions)  # [B * S, H]


def _gather_rows(x: Any, indices: Any, inverse: Any, mask: Any = None) -> Any:
    """Gathers rows of `x`; the gradient gathers the rows `inverse` and applies `mask`.

    TensorFlow's gradient of a gather scatters and sums, because rows may repeat; here they do not.
    """

    @ops.custom_gradient
    def run(x: Any) -> Any:
        def gradient(*arguments: Any, upstream: Any = None) -> Any:
            dx = ops.take(get_upstream(arguments, upstream), inverse, axis=0)
            return dx if mask is None else dx * ops.cast(mask, dx.dtype)

        return ops.take(x, indices, axis=0), gradient

    return run(x)
