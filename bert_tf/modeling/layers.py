"""Layers of the encoder.

Dimension letters used in shapes, here and in the other model files:

    B  batch        rows of a batch
    S  sequence     sequence length, padding included
    H  hidden       width of the model
    N  heads        attention heads
    D  head size    H / N
    I  intermediate width of the feed-forward layer
    V  vocabulary   rows of the word embedding table
    P  predictions  masked positions per sequence
    T  tokens       tokens that the encoder computes: B * S, or fewer (see `token_layout.py`)

Layers are named after the scopes of the original BERT, so that a variable's path is its name in
`bert_model.ckpt`. Every layer builds its children in `build`: if a child were built only by its
first call, Keras would silently give it random weights when loading a `.keras` file.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from bert_tf.config import LAYER_NORM_EPSILON, BertConfig
from bert_tf.modeling import gradients
from bert_tf.modeling.dropout import Dropout, fold_in
from bert_tf.modeling.token_layout import PaddedLayout

# The attention mask adds this to the scores of padding. As in the original, it is finite: attention
# within a sequence that is all padding is then the same as without a mask.
MASK_BIAS = -10000.0


def gelu(x: Any) -> Any:
    """Gaussian error linear unit (Hendrycks and Gimpel 2016) in the tanh form, as in the original.

    It is 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
    """
    return keras.activations.gelu(x, approximate=True)


def get_activation(activation: str | Callable | None) -> Callable | None:
    """Returns the activation function of a `hidden_act`; None for `linear`, None and "".

    Args:
        activation: one of `config.ACTIVATIONS` (case-insensitive), or a callable, returned as is.

    Raises:
        ValueError: the activation is unknown.
    """
    if callable(activation):
        return activation
    functions = {
        "linear": None,
        "relu": keras.activations.relu,
        "gelu": gelu,
        "tanh": keras.activations.tanh,
        "gelu_erf": keras.activations.gelu,
    }
    name = (activation or "linear").lower()
    if name not in functions:
        expected = f"activation must be one of {', '.join(functions)}"
        raise ValueError(f"{expected}. Received: {activation!r}")
    return functions[name]


def create_initializer(initializer_range: float = 0.02) -> keras.initializers.Initializer:
    """Returns a normal initializer, truncated at two standard deviations; zeros if range is 0."""
    # Create it even if it is not returned: this draws a seed, and later seeds must not change.
    initializer = keras.initializers.TruncatedNormal(stddev=initializer_range or 1.0)
    return initializer if initializer_range else keras.initializers.Zeros()


class FlatDense(keras.layers.Dense):
    """A dense layer that flattens inputs to rank 2, so that TensorFlow fuses matmul and bias.

    Keras' Dense reshapes in between, which costs up to a third of an encoder's time on CPU.
    """

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """[.., in] -> [.., units]."""
        is_flat = len(inputs.shape) == 2
        flat = inputs if is_flat else ops.reshape(inputs, (-1, inputs.shape[-1]))
        product = ops.matmul(flat, self.kernel)
        # TensorFlow fuses the matmul with `ops.add` (a BiasAdd), not with `+`. Training needs the
        # product without bias. Before a float32 gelu, fusing does not pay off: it changes the speed
        # by +3% with AVX-512 instructions and by -2% with AVX2.
        unfused = training or (self.activation is gelu and self.compute_dtype == "float32")
        pre_activation = product + self.bias if unfused else ops.add(product, self.bias)
        # In inference, where no gradient is needed, Keras' gelu is faster.
        activation = gradients.gelu if training and self.activation is gelu else self.activation
        outputs = activation(pre_activation)
        return outputs if is_flat else ops.reshape(outputs, (*ops.shape(inputs)[:-1], self.units))


class LayerNorm(keras.layers.LayerNormalization):
    """Layer normalization over the last axis, in at least float32."""

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """[.., H] -> [.., H]."""
        if not training:
            # Keras computes the same formula as the original, and thus rounds in the same way.
            return super().call(inputs)
        dtype = keras.backend.result_type(self.compute_dtype, "float32")
        inputs, gamma, beta = (ops.cast(x, dtype) for x in (inputs, self.gamma, self.beta))
        outputs = gradients.layer_norm(inputs, gamma, beta, self.epsilon)
        return ops.cast(outputs, self.compute_dtype)


def dense_layer(
    units: int, config: BertConfig, dtype: Any, activation: Any = None, name: str = "dense"
) -> keras.layers.Dense:
    """Returns a dense layer whose kernel is initialized with `config.initializer_range`."""
    activation = get_activation(activation)
    initializer = create_initializer(config.initializer_range)
    return FlatDense(units, activation, kernel_initializer=initializer, name=name, dtype=dtype)


def layer_norm_layer(dtype: Any) -> LayerNorm:
    """Returns a layer with the original's name and epsilon; its weights are at least float32."""
    policy = keras.dtype_policies.get(dtype)
    if policy.variable_dtype in ("bfloat16", "float16"):
        dtype = f"mixed_{policy.variable_dtype}"
    return LayerNorm(epsilon=LAYER_NORM_EPSILON, name="LayerNorm", dtype=dtype)


def create_attention_mask(input_mask: Any, dtype: str) -> Any:
    """Returns the additive attention mask [B, 1, 1, S]: 0 for tokens, -10000 for padding.

    `input_mask` [B, S] is 1 for tokens. As in the original, only keys are masked, not queries.
    """
    # Use `expand_dims`: indexing with None gives a slice operation that LiteRT does not support.
    return (1.0 - ops.expand_dims(ops.cast(input_mask, dtype), (1, 2))) * MASK_BIAS


class SelfAttention(keras.layers.Layer):
    """Scaled dot-product self-attention with N heads (Vaswani et al. 2017)."""

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(name="self", **kwargs)
        self.num_heads = config.num_attention_heads
        self.head_size = config.hidden_size // config.num_attention_heads
        self.query, self.key, self.value = (
            dense_layer(config.hidden_size, config, self.dtype_policy, name=name)
            for name in ("query", "key", "value")
        )
        self.dropout = Dropout(config.attention_probs_dropout_prob or 0.0, dtype=self.dtype_policy)

    def build(self, input_shape: Any) -> None:
        """Builds the three projections for [B, S, H]."""
        for projection in (self.query, self.key, self.value):
            projection.build(input_shape)

    def call(
        self,
        hidden: Any,
        attention_mask: Any,
        dropout_seed: Any = None,
        *,
        layout: PaddedLayout,
        training: bool | None = None,
    ) -> tuple[Any, Any]:
        """[T, H], additive mask [B, 1, 1, S] -> [T, H] and attention probabilities [B, N, S, S]."""
        # Scaling the queries gives the same scores as scaling the scores, usually with less work.
        query = layout.split_heads(self.query(hidden) * (1.0 / math.sqrt(self.head_size)))
        key = layout.split_heads(self.key(hidden))  # [B, N, S, D]
        value = layout.split_heads(self.value(hidden))  # [B, N, S, D]
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2))) + attention_mask
        probabilities = ops.softmax(scores, axis=-1)  # [B, N, S, S]
        context = ops.matmul(self.dropout(probabilities, dropout_seed, training=training), value)
        return layout.merge_heads(context), probabilities


class ResidualOutput(keras.layers.Layer):
    """The end of a block: dense to H, dropout, residual connection, layer normalization."""

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(name="output", **kwargs)
        self.dense = dense_layer(config.hidden_size, config, self.dtype_policy)
        self.dropout = Dropout(config.hidden_dropout_prob or 0.0, dtype=self.dtype_policy)
        self.layer_norm = layer_norm_layer(self.dtype_policy)

    def build(self, input_shape: Any) -> None:
        """Builds the children for inputs [B, S, width]."""
        self.dense.build(input_shape)
        self.layer_norm.build((*input_shape[:-1], self.dense.units))

    def call(
        self, x: Any, residual: Any, dropout_seed: Any = None, *, training: bool | None = None
    ) -> Any:
        """[T, width] and the input [T, H] of the block -> [T, H]."""
        dropped = self.dropout(self.dense(x), dropout_seed, training=training)
        return self.layer_norm(dropped + residual, training=training)


class TransformerLayer(keras.layers.Layer):
    """Self-attention and a feed-forward network, each with a residual connection and layer norm."""

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hidden_size = config.hidden_size
        self.attention = SelfAttention(config, dtype=self.dtype_policy)
        self.attention_output = ResidualOutput(config, dtype=self.dtype_policy)
        self.intermediate = dense_layer(
            config.intermediate_size, config, self.dtype_policy, config.hidden_act
        )
        self.feed_forward_output = ResidualOutput(config, dtype=self.dtype_policy)

    def build(self, input_shape: Any) -> None:
        """Builds the children under the original's scopes `attention`, `intermediate`, `output`."""
        with keras.name_scope("attention"):
            self.attention.build(input_shape)
            self.attention_output.build(input_shape)
        with keras.name_scope("intermediate"):
            self.intermediate.build(input_shape)
        self.feed_forward_output.build((*input_shape[:-1], self.intermediate.units))

    def call(
        self,
        hidden: Any,
        attention_mask: Any,
        dropout_seed: Any = None,
        *,
        layout: PaddedLayout,
        training: bool | None = None,
        return_attention_probs: bool = False,
    ) -> Any:
        """[T, H], additive mask [B, 1, 1, S] -> [T, H] and, if requested, [B, N, S, S]."""
        seeds = [fold_in(dropout_seed, index) for index in range(3)]
        context, probabilities = self.attention(
            hidden, attention_mask, seeds[0], layout=layout, training=training
        )
        attended = self.attention_output(context, hidden, seeds[1], training=training)  # [T, H]
        intermediate = self.intermediate(attended, training=training)  # [T, I]
        output = self.feed_forward_output(intermediate, attended, seeds[2], training=training)
        return (output, probabilities) if return_attention_probs else output


class Encoder(keras.layers.Layer):
    """The stack of encoder layers; for `recompute_layers` (Chen et al. 2016), see `BertModel`."""

    def __init__(self, config: BertConfig, recompute_layers: bool = False, **kwargs: Any) -> None:
        super().__init__(name="encoder", **kwargs)
        self.recompute_layers = recompute_layers
        self.transformer_layers = [
            TransformerLayer(config, name=f"layer_{index}", dtype=self.dtype_policy)
            for index in range(config.num_hidden_layers)
        ]

    def build(self, input_shape: Any) -> None:
        """Builds every layer for [B, S, H]."""
        for layer in self.transformer_layers:
            layer.build(input_shape)

    def call(
        self,
        hidden: Any,
        attention_mask: Any,
        dropout_seed: Any = None,
        *,
        layout: PaddedLayout,
        training: bool | None = None,
        return_attention_probs: bool = False,
    ) -> tuple[list[Any], list[Any]]:
        """[T, H] -> each layer's output [T, H] and, if requested, attention [B, N, S, S]."""
        outputs, all_probabilities = [], []
        for index, layer in enumerate(self.transformer_layers):
            call_layer = functools.partial(
                layer,
                layout=layout,
                attention_mask=attention_mask,
                dropout_seed=fold_in(dropout_seed, index),
                training=training,
                return_attention_probs=return_attention_probs,
            )
            if self.recompute_layers and training:
                call_layer = keras.remat(call_layer)
            hidden = call_layer(hidden)
            if return_attention_probs:
                hidden, probabilities = hidden
                all_probabilities.append(probabilities)
            outputs.append(hidden)
        return outputs, all_probabilities


class Pooler(keras.layers.Layer):
    """Dense layer and tanh on the first token, which represents the sequence."""

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(name="pooler", **kwargs)
        # Always tanh, regardless of hidden_act.
        self.dense = dense_layer(config.hidden_size, config, self.dtype_policy, "tanh")

    def build(self, input_shape: Any) -> None:
        """Builds the dense layer for [B, S, H]."""
        self.dense.build((input_shape[0], input_shape[-1]))

    def call(self, sequence_output: Any) -> Any:
        """[B, S, H] -> [B, H]."""
        return self.dense(sequence_output[:, 0, :])
