"""`BertModel`: embeddings, encoder and pooler. For the letters in shapes, see `layers.py`."""

import copy
from typing import Any

import keras
from keras import ops

from bert_tf.base.foreign_names import error_stubs
from bert_tf.config import BertConfig
from bert_tf.modeling import layers
from bert_tf.modeling.configured_model import ConfiguredModel, HeadFormat
from bert_tf.modeling.dropout import Dropout
from bert_tf.modeling.token_layout import PaddedLayout, UnpaddedLayout


class BertEmbeddings(keras.layers.Layer):
    """Sums word, segment and position embeddings (figure 2), then applies layer norm and dropout.

    `use_one_hot_embeddings` looks up words with a one-hot matrix product, which is faster on TPUs.
    A word id out of range then adds a zero vector instead of raising an error.
    """

    def __init__(
        self, config: BertConfig, use_one_hot_embeddings: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(name="embeddings", **kwargs)
        self.config = config
        self.use_one_hot_embeddings = use_one_hot_embeddings
        self.layer_norm = layers.layer_norm_layer(self.dtype_policy)
        self.dropout = Dropout(config.hidden_dropout_prob or 0.0, dtype=self.dtype_policy)

    def build(self, input_shape: Any = None) -> None:
        """Creates the three embedding tables, with sizes from the configuration."""
        config, num_positions = self.config, self.config.max_position_embeddings
        self.word_embeddings = self._add("word_embeddings", config.vocab_size)
        self.token_type_embeddings = self._add("token_type_embeddings", config.type_vocab_size)
        self.position_embeddings = self._add("position_embeddings", num_positions)
        self.layer_norm.build((None, None, config.hidden_size))

    def _add(self, name: str, num_rows: int) -> keras.Variable:
        initializer = layers.create_initializer(self.config.initializer_range)
        shape = (num_rows, self.config.hidden_size)
        return self.add_weight(shape=shape, initializer=initializer, name=name)

    def call(
        self,
        input_ids: Any,
        segment_ids: Any,
        dropout_seed: Any = None,
        training: bool | None = None,
        words: Any = None,
    ) -> Any:
        """Word ids [B, S], or their embeddings `words`, and segment ids [B, S] -> [B, S, H]."""
        length, max_length = input_ids.shape[1], self.config.max_position_embeddings
        if length is not None and length > max_length:
            raise ValueError(f"{length} tokens exceed max_position_embeddings={max_length}")
        table = self.word_embeddings
        if words is None and self.use_one_hot_embeddings:
            words = ops.matmul(_one_hot(input_ids, table), table)  # [B, S, H]
        elif words is None:
            words = ops.take(table, input_ids, axis=0)  # [B, S, H]
        # As in the original, segments are always looked up with a matrix product, which adds zeros
        # for an id out of range.
        table = self.token_type_embeddings
        segments = ops.matmul(_one_hot(segment_ids, table), table)  # [B, S, H]
        positions = self.position_embeddings[: ops.shape(input_ids)[1]]  # [S, H]
        embeddings = words + segments + positions[None, :, :]
        normalized = self.layer_norm(embeddings, training=training)
        return self.dropout(normalized, dropout_seed, training=training)


def _one_hot(ids: Any, table: Any) -> Any:
    """Ids [B, S] -> one-hot vectors [B, S, rows of `table`]."""
    return ops.one_hot(ids, table.shape[0], dtype=table.dtype)


@keras.saving.register_keras_serializable(package="bert_tf")
class BertModel(ConfiguredModel):
    """Bidirectional transformer encoder (Devlin et al. 2018, section 3).

    Args:
        config: sizes and dropout rates; copied.
        use_one_hot_embeddings: look up words with a one-hot matrix product (faster on TPUs).
        recompute_layers: keep only each layer's input in memory, and recompute its activations in
            the backward pass (gradient checkpointing); training takes about a third longer.
        zero_init_encoder: initialize the encoder with zeros, which is faster than random values, if
            weights will be loaded anyway.
        name: scope of the variables in this model; in a checkpoint, it is always `bert`. Two
            encoders in one functional model need different names.
    """

    head_format = HeadFormat("encoder", {}, "BertModel", outputs="fixed")
    exported_outputs = ("sequence_output", "pooled_output")

    locals().update(error_stubs("BertModel"))

    def __init__(
        self,
        config: BertConfig,
        use_one_hot_embeddings: bool = False,
        recompute_layers: bool = False,
        zero_init_encoder: bool = False,
        name: str = "bert",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            config, use_one_hot_embeddings, recompute_layers, zero_init_encoder, name=name, **kwargs
        )
        init_config = copy.deepcopy(config)
        if zero_init_encoder:
            init_config.initializer_range = 0.0
        dtype = self.dtype_policy
        self.embeddings = BertEmbeddings(init_config, use_one_hot_embeddings, dtype=dtype)
        self.encoder = layers.Encoder(init_config, recompute_layers, dtype=dtype)
        self.pooler = layers.Pooler(init_config, dtype=dtype)
        self.build()

    def build(self, input_shape: Any = None) -> None:
        """Creates the variables, which do not depend on the input shape."""
        if not self.built:
            hidden_shape = (None, None, self.config.hidden_size)
            self.embeddings.build()
            self.encoder.build(hidden_shape)
            self.pooler.build(hidden_shape)

    def call(
        self,
        inputs: dict[str, Any],
        training: bool | None = None,
        dropout_seed: Any = None,
        return_attention_probs: bool = False,
    ) -> dict[str, Any]:
        """Encodes token ids.

        Args:
            inputs: `input_ids` [B, S], word piece ids; optional `input_mask` [B, S], 1 for tokens
                and 0 for padding, by default ones; optional `segment_ids` [B, S], by default zeros;
                optional `token_positions`, int32 [T], see `UnpaddedLayout`: the encoder then skips
                all other positions, whose outputs are 0; optional `word_embeddings` [B, S, H],
                instead of those of `input_ids`. Other keys, such as labels, are ignored.
            training: whether to apply dropout.
            dropout_seed: int32 [2], determines the dropout masks; by default the model draws one.
                As uint32 [2] (on TensorFlow only), it determines other masks, which XLA computes
                in fewer operations.
            return_attention_probs: whether to return `all_attention_probs`, too.

        Returns:
            A dict of `embedding_output` [B, S, H]; `all_encoder_layers`, a list of the layers'
            outputs [B, S, H]; `sequence_output` [B, S, H], the output of the last layer;
            `pooled_output` [B, H]; and `all_attention_probs`, a list of [B, N, S, S].
        """
        input_ids = inputs["input_ids"]
        present = {name: value for name, value in inputs.items() if value is not None}
        input_mask = present.get("input_mask", ops.ones_like(input_ids))
        segment_ids = present.get("segment_ids", ops.zeros_like(input_ids))
        seeds = self._dropout_seeds(2, dropout_seed, training)
        words = present.get("word_embeddings")
        embedding_output = self.embeddings(
            input_ids, segment_ids, seeds[0], training=training, words=words
        )
        attention_mask = layers.create_attention_mask(input_mask, self.compute_dtype)
        num_heads = self.config.num_attention_heads
        layout = PaddedLayout(input_mask, num_heads)
        if "token_positions" in inputs:
            layout = UnpaddedLayout(input_mask, num_heads, inputs["token_positions"])
        layer_outputs, attention_probs = self.encoder(
            layout.unpad(embedding_output),
            attention_mask,
            seeds[1],
            layout=layout,
            training=training,
            return_attention_probs=return_attention_probs,
        )
        # Compiled functions skip this for layers whose outputs are not used.
        layer_outputs = [layout.pad(output) for output in layer_outputs]
        outputs = {
            "embedding_output": embedding_output,
            "all_encoder_layers": layer_outputs,
            "sequence_output": layer_outputs[-1],
            "pooled_output": self.pooler(layer_outputs[-1]),
        }
        if return_attention_probs:
            outputs["all_attention_probs"] = attention_probs
        return outputs

    def onnx_outputs(self, graph: Any, hidden: str) -> dict[str, Any]:
        """Adds the pooler to an ONNX graph, see `EncoderWithHead`."""
        size = self.config.hidden_size
        return {
            "last_hidden_state": (hidden, ["batch", "sequence", size]),
            "pooler_output": (graph.pooler(hidden, self), ["batch", size]),
        }
