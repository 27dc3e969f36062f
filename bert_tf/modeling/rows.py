"""The rows of a batch one behind the other: the form that the encoder computes in.

Everything in it but attention sees one token at a time, and what is computed for padding is read by
nobody: `TokenRows` leave it out. Rows of MRPC have 53 tokens on average, the longest of 32 has 80
or so. `T` stands for the number of tokens that are computed (the other letters: see `layers.py`).
"""

from collections.abc import Callable
from typing import Any

from keras import ops

from bert_tf.modeling.gradients import upstream_of


class PaddedRows:
    """All tokens of a batch, padding included: T is B S.

    Args:
        input_mask: [B, S].
        num_heads: N.

    Attributes:
        compute: what gives a function of [T, ..] and weights, the same one in all layers, where
            nothing is trained; None where layers are to compute it operation by operation.
    """

    compute: Callable[..., Any] | None = None

    def __init__(self, input_mask: Any, num_heads: int) -> None:
        self.shape = ops.shape(input_mask)[:2]
        self.num_heads = num_heads

    def strip(self, x: Any) -> Any:
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


class TokenRows(PaddedRows):
    """The tokens of a batch without the padding between them.

    Args:
        input_mask: [B, S], 1 for tokens.
        num_heads: N.
        token_positions: int32 [T], where tokens are in the flat batch [B S], in order; at least
            one.
    """

    def __init__(self, input_mask: Any, num_heads: int, token_positions: Any) -> None:
        super().__init__(input_mask, num_heads)
        batch, length = self.shape
        self.positions = ops.cast(token_positions, "int32")
        numbers = ops.arange(ops.shape(self.positions)[0], dtype="int32")
        where = self.positions[:, None]
        # For each place of the batch its token. Padding has the first one's number: what is taken
        # from there is masked, by attention or here.
        self.tokens = ops.scatter(where, numbers, (batch * length,))
        self.is_token = ops.scatter(where, ops.ones_like(numbers), (batch * length,))
        heads = ops.arange(num_heads, dtype="int32")
        # With heads: [B N S] numbers of [T N] tokens, and their [T N] places in [B N S].
        tokens = ops.reshape(self.tokens, (batch, 1, length)) * num_heads
        self.head_tokens = ops.reshape(tokens + heads[None, :, None], (-1,))
        rows, columns = self.positions // length, self.positions % length
        places = (rows[:, None] * num_heads + heads[None, :]) * length + columns[:, None]
        self.head_positions = ops.reshape(places, (-1,))
        is_token = ops.reshape(self.is_token, (batch, 1, length, 1))
        self.is_head_token = ops.reshape(ops.tile(is_token, (1, num_heads, 1, 1)), (-1, 1))

    def strip(self, x: Any) -> Any:
        """[B, S, H] -> [T, H]."""
        flat = ops.reshape(x, (-1, x.shape[-1]))
        return _move(flat, self.positions, self.tokens, self.is_token[:, None])

    def pad(self, x: Any) -> Any:
        """[T, H] -> [B, S, H], 0 at padding."""
        padded = _move(x, self.tokens, self.positions)
        padded = padded * ops.cast(self.is_token, x.dtype)[:, None]
        return ops.reshape(padded, (*self.shape, x.shape[-1]))

    def split_heads(self, x: Any) -> Any:
        """[T, H] -> [B, N, S, D]; at padding there is what the mask of attention has to hide."""
        size = x.shape[-1] // self.num_heads
        heads = _move(ops.reshape(x, (-1, size)), self.head_tokens, self.head_positions)
        return ops.reshape(heads, (self.shape[0], self.num_heads, self.shape[1], size))

    def merge_heads(self, x: Any) -> Any:
        """[B, N, S, D] -> [T, H]."""
        size = x.shape[-1]
        flat = ops.reshape(x, (-1, size))
        tokens = _move(flat, self.head_positions, self.head_tokens, self.is_head_token)
        return ops.reshape(tokens, (-1, self.num_heads * size))


def _move(x: Any, there: Any, back: Any, kept: Any = None) -> Any:
    """Rows `there` of `x`; their gradient is moved `back`, to the rows that are `kept`.

    The gradient of a look-up is a sum for each row, as one may have been looked up several times;
    here none is, and another look-up does.
    """

    @ops.custom_gradient
    def run(x: Any) -> Any:
        def gradient(*arguments: Any, upstream: Any = None) -> Any:
            found = ops.take(upstream_of(arguments, upstream), back, axis=0)
            return found if kept is None else found * ops.cast(kept, found.dtype)

        return ops.take(x, there, axis=0), gradient

    return run(x)
