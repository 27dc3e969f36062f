"""`BertModel`: embeddings, encoder and pooler. For the letters in shapes, see `layers.py`."""

import copy
import os
from typing import Any

import keras
from keras import ops

from bert_tf import registry
from bert_tf.config import BertConfig
from bert_tf.modeling import layers
from bert_tf.modeling.dropout import Dropout, fold_in
from bert_tf.modeling.head_format import HeadFormat
from bert_tf.modeling.inputs import check_inputs
from bert_tf.modeling.token_layout import PaddedLayout, UnpaddedLayout
from bert_tf.removed_api import error_stubs


class ConfiguredModel(keras.Model):
    """Base class of models defined by a `BertConfig`; takes the arguments of `BertModel`.

    Subclasses create all variables in the constructor, so that a checkpoint can be loaded before
    the first call, and variable names do not depend on where the model is called.
    """

    # Rank of the inputs: 2 for [B, S], 3 for multiple choice, [B, C, S] with C choices.
    input_rank = 2
    # Names of the inputs of an exported model.
    input_names: tuple[str, ...] = ("input_ids", "input_mask", "segment_ids")
    # Calls the model without checking the inputs, as a model does that contains this one.
    call_unchecked = keras.Model.__call__
    # Names of the outputs that a LiteRT model returns; None for all.
    exported_outputs: tuple[str, ...] | None = None

    def __init__(
        self,
        config: BertConfig,
        use_one_hot_embeddings: bool = False,
        recompute_layers: bool = False,
        zero_init_encoder: bool = False,
        **kwargs: Any,
    ) -> None:
        are_bools = {type(use_one_hot_embeddings), type(recompute_layers)} == {bool}
        if "is_training" in kwargs or "input_ids" in kwargs or not are_bools:
            # The original's arguments: raise an error that explains what to use instead.
            error_stubs("modeling")["BertModel(config, is_training, ...)"]()
        if not isinstance(config, BertConfig):
            received = f"Received: {type(config).__name__}. Use BertConfig.from_json_file(path)"
            raise ValueError(f"config must be a BertConfig. {received}")
        super().__init__(**kwargs)
        self.config = copy.deepcopy(config)
        self.use_one_hot_embeddings = use_one_hot_embeddings
        self.recompute_layers = recompute_layers
        self.zero_init_encoder = zero_init_encoder
        self.seed_generator = keras.random.SeedGenerator()

    @classmethod
    def from_checkpoint(cls, path: str | os.PathLike, **kwargs: Any) -> Any:
        """Creates a model with the weights of a checkpoint; requires Keras' TensorFlow backend.

        Example:
            encoder = BertModel.from_checkpoint("uncased_L-12_H-768_A-12")
            classifier = BertClassifier.from_checkpoint("uncased_L-12_H-768_A-12", num_labels=3)

        Args:
            path: checkpoint or its folder, in any format that `convert_checkpoint.py` reads.
            kwargs: arguments of the constructor, except `config`.

        Returns:
            The model. Variables missing from the checkpoint, such as those of a new head, are
            initialized randomly and listed in the log.

        Raises:
            UserError: the checkpoint cannot be read, has no configuration or does not match it.
        """
        return registry.load("bert_tf.checkpoints.formats.detection:load_model")(
            cls, path, **kwargs
        )

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls the model, after checking the inputs with clearer error messages than Keras'."""
        check_inputs(inputs, self.config, self.input_rank, self.input_names)
        return super().__call__(inputs, *args, **kwargs)

    def fit(self, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Trains as Keras does, after checking the values of `x` unless it is a dataset."""
        self._check_arrays(x)
        return super().fit(x, *args, **kwargs)

    def evaluate(self, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Evaluates as Keras does, after the same check."""
        self._check_arrays(x)
        return super().evaluate(x, *args, **kwargs)

    def predict(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Predicts as Keras does, after the same check."""
        self._check_arrays(x)
        return super().predict(x, *args, **kwargs)

    def _check_arrays(self, x: Any) -> None:
        # A compiled step cannot check values, and would ignore segments out of range. For texts,
        # Keras' own errors are about dtypes.
        if isinstance(x, dict | list | tuple | str) or hasattr(x, "dtype"):
            check_inputs(x, self.config, self.input_rank)

    def build_from_config(self, config: dict[str, Any]) -> None:
        """Does nothing: when Keras loads a saved model, the constructor has already built it."""

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of `__init__`; raises ValueError if `hidden_act` is a function."""
        if callable(self.config.hidden_act):
            raise ValueError(
                f"Cannot save a model whose hidden_act is a function: {self.config.hidden_act!r}"
            )
        frozen = [x.path for x in self._flatten_layers() if x.path and not x.trainable]
        return {
            "name": self.name,
            "trainable": self.trainable,
            # Read by `from_config`, as this package's layers are not saved as objects of their own.
            **({"frozen_layers": frozen} if frozen else {}),
            "dtype": keras.saving.serialize_keras_object(self.dtype_policy),
            "config": self.config.to_dict(),
            "use_one_hot_embeddings": self.use_one_hot_embeddings,
            "recompute_layers": self.recompute_layers,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> "ConfiguredModel":
        """Creates a model from the result of `get_config`, with the same layers frozen."""
        dtype = keras.saving.deserialize_keras_object(config["dtype"])
        arguments = {**config, "config": BertConfig.from_dict(config["config"]), "dtype": dtype}
        frozen = arguments.pop("frozen_layers", ())
        model = cls(**arguments)
        # Layers follow their parents, whose setting they would take otherwise.
        for layer in model._flatten_layers(include_self=False) if frozen else ():
            layer.trainable = layer.path not in frozen
        return model

    def export(self, filepath: str, *args: Any, **kwargs: Any) -> None:
        """Exports as Keras does; `input_signature` defaults to the inputs `input_names`.

        An output that is a list becomes one output per item, such as `all_encoder_layers_0`.
        """
        if kwargs.get("input_signature"):
            super().export(filepath, *args, **kwargs)
            return
        shape = (None,) * (self.input_rank - 1)
        inputs = {name: keras.Input(shape, dtype="int32", name=name) for name in self.input_names}
        outputs = self(inputs)
        for name in [name for name, value in outputs.items() if isinstance(value, list)]:
            outputs |= {f"{name}_{index}": item for index, item in enumerate(outputs.pop(name))}
        keras.Model(inputs, outputs).export(filepath, *args, **kwargs)

    def _dropout_seeds(self, count: int, seed: Any, training: bool | None) -> list[Any]:
        """Derives `count` seeds from `seed`; if it is None, as in `fit`, draws a new one first."""
        if training:
            is_key = getattr(seed, "dtype", "") == "uint32"
            seed = self.seed_generator.next() if seed is None else seed
            seed = seed if is_key else ops.cast(seed, "int32")
        return [fold_in(seed if training else None, index) for index in range(count)]


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
    ) -> Any:
        """Word ids [B, S] and segment ids [B, S] -> [B, S, H]."""
        length, max_length = input_ids.shape[1], self.config.max_position_embeddings
        if length is not None and length > max_length:
            raise ValueError(f"{length} tokens exceed max_position_embeddings={max_length}")
        table = self.word_embeddings
        if self.use_one_hot_embeddings:
            words = ops.matmul(_one_hot(input_ids, table), table)  # [B, S, H]
        else:
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
                all other positions, whose outputs are 0. Other keys, such as labels, are ignored.
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
        embedding_output = self.embeddings(input_ids, segment_ids, seeds[0], training=training)
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
