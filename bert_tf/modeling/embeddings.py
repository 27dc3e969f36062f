"""From ids to vectors (shape letters: see `layers.py`)."""

from typing import Any

import keras
from keras import ops

from bert_tf.config import BertConfig
from bert_tf.modeling.dropout import Dropout
from bert_tf.modeling.layers import create_initializer, layer_norm_layer


class BertEmbeddings(keras.layers.Layer):
    """Word, segment and position embeddings, summed, normalised and dropped out (section 3.2).

    Args:
        config: sizes of the model.
        use_one_hot_embeddings: look words up by a matrix product with one-hot rows, which is
            faster on a TPU. Ids out of range then give a zero vector instead of an error.
    """

    def __init__(
        self, config: BertConfig, use_one_hot_embeddings: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(name="embeddings", **kwargs)
        self.config = config
        self.use_one_hot_embeddings = use_one_hot_embeddings
        self.layer_norm = layer_norm_layer(self.dtype_policy)
        self.dropout = Dropout(config.hidden_dropout_prob or 0.0, dtype=self.dtype_policy)

    def build(self, input_shape: Any = None) -> None:
        """Creates the three tables; their sizes come from the configuration."""
        self.word_embeddings = self._table("word_embeddings", self.config.vocab_size)
        self.token_type_embeddings = self._table(
            "token_type_embeddings", self.config.type_vocab_size
        )
        self.position_embeddings = self._table(
            "position_embeddings", self.config.max_position_embeddings
        )
        self.layer_norm.build((None, None, self.config.hidden_size))

    def _table(self, name: str, rows: int) -> keras.Variable:
        return self.add_weight(
            shape=(rows, self.config.hidden_size),
            initializer=create_initializer(self.config.initializer_range),
            name=name,
        )

    def call(
        self,
        input_ids: Any,
        segment_ids: Any,
        dropout_seed: Any = None,
        training: bool | None = None,
    ) -> Any:
        """[B, S] word ids and [B, S] segment ids -> [B, S, H].

        Raises:
            ValueError: S is known and greater than `max_position_embeddings`.
        """
        length, rows = input_ids.shape[1], self.config.max_position_embeddings
        if length is not None and length > rows:
            raise ValueError(
                "The sequence is longer than the position table. Received: "
                f"{length} tokens, max_position_embeddings={rows}"
            )
        if self.use_one_hot_embeddings:
            words = _one_hot_lookup(self.word_embeddings, input_ids)  # [B, S, H]
        else:
            words = ops.take(self.word_embeddings, input_ids, axis=0)  # [B, S, H]
        # The few segments are always looked up by a matrix product, as in the original; an id
        # beyond the table therefore adds nothing instead of failing.
        segments = _one_hot_lookup(self.token_type_embeddings, segment_ids)  # [B, S, H]
        positions = self.position_embeddings[: ops.shape(input_ids)[1]]  # [S, H]
        embeddings = words + segments + positions[None, :, :]
        normal = self.layer_norm(embeddings, training=training)
        return self.dropout(normal, dropout_seed, training=training)


def _one_hot_lookup(table: Any, ids: Any) -> Any:
    one_hot = ops.one_hot(ids, table.shape[0], dtype=table.dtype)  # [B, S, rows]
    return ops.matmul(one_hot, table)  # [B, S, H]
