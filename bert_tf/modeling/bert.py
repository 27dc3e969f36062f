"""BertModel: embeddings, encoder and pooler (shape letters: see `layers.py`)."""

import copy
import difflib
import sys
from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from bert_tf.config import BertConfig
from bert_tf.modeling.dropout import fold_in
from bert_tf.modeling.embeddings import BertEmbeddings
from bert_tf.modeling.layers import Encoder, Pooler, create_attention_mask
from bert_tf.modeling.token_layout import PaddedLayout, UnpaddedLayout
from bert_tf.replaced import replaced

_INPUTS = ("input_ids", "input_mask", "segment_ids")
# Their names, and those in other programs.
_NAMES = {
    **{name: name for name in _INPUTS},
    **dict.fromkeys(("input_word_ids", "token_ids"), "input_ids"),
    **dict.fromkeys(("attention_mask", "padding_mask", "mask"), "input_mask"),
    **dict.fromkeys(("input_type_ids", "token_type_ids"), "segment_ids"),
}
_SIMILARITY = 0.85


def check_inputs(inputs: Any, config: BertConfig) -> None:
    """Checks names, shapes and, where there are values, ids; adds nothing to a graph.

    Raises:
        ValueError: they would change the results, or give an error deep inside.
    """
    if not isinstance(inputs, Mapping) or "input_ids" not in inputs:
        received = list(inputs) if isinstance(inputs, Mapping) else type(inputs).__name__
        raise ValueError(f'inputs must be a dict, {{"input_ids": ids, ...}}. Received: {received}')
    for name in inputs.keys() - set(_INPUTS):
        for similar in difflib.get_close_matches(str(name).lower(), _NAMES, 1, _SIMILARITY):
            raise ValueError(f"The input {name!r} is called {_NAMES[similar]!r} here")
    shapes = [getattr(inputs.get(name), "shape", None) for name in _INPUTS]
    for name, shape in zip(_INPUTS, shapes, strict=True):
        value = inputs.get(name)
        is_float = "float" in str(getattr(value, "dtype", "")) and name == "input_ids"
        if is_float or (value is not None and shape is None):
            kind = value.dtype if is_float else type(value).__name__
            raise ValueError(f"{name} must be an array or a tensor of integers. Received: {kind}")
        if shape is None or getattr(shape, "rank", 2) is None:
            continue
        # Dimensions of symbolic tensors may be None or symbols.
        pairs = zip(shape, shapes[0] or (), strict=False)
        if len(shape) != 2 or any({type(a), type(b)} == {int} and a != b for a, b in pairs):
            expected = "[B, S]" if name == "input_ids" else f"of input_ids, {tuple(shapes[0])}"
            raise ValueError(f"{name} must have the shape {expected}. Received: {tuple(shape)}")
    sizes = (config.vocab_size, 2, config.type_vocab_size)
    for name, size in zip(_INPUTS, sizes, strict=True):
        for value in _extremes(inputs.get(name)):
            if not 0 <= value < size:
                raise ValueError(f"{name} must be from 0 to {size - 1}. Received: {value}")


def _extremes(ids: Any) -> tuple:
    """The smallest and the largest value; nothing of a symbolic tensor."""
    torch = sys.modules.get("torch")
    if torch and torch.compiler.is_compiling():
        return ()
    try:
        values = ops.convert_to_numpy(ids)
        return values.min(initial=0), values.max(initial=0)
    except (AttributeError, NotImplementedError, TypeError, ValueError):
        return ()


class ConfiguredModel(keras.Model):
    """A model whose every shape follows from a `BertConfig`.

    It has its variables from the moment it is made, so that a checkpoint can be loaded before
    anything is computed, and the names of the variables do not depend on where it is used. Its
    arguments are those of `BertModel`.

    Attributes:
        input_names: names of the inputs that an exported model takes.
    """

    input_names: tuple[str, ...] = ("input_ids", "input_mask", "segment_ids")

    def __init__(
        self,
        config: BertConfig,
        use_one_hot_embeddings: bool = False,
        recompute_layers: bool = False,
        zero_init_encoder: bool = False,
        **kwargs: Any,
    ) -> None:
        if "is_training" in kwargs or "input_ids" in kwargs:
            replaced("modeling")["BertModel(config, is_training, ...)"]()
        if not isinstance(config, BertConfig):
            received = f"Received: {type(config).__name__}. Use BertConfig.from_json_file(path)"
            raise ValueError(f"config must be a BertConfig. {received}")
        super().__init__(**kwargs)
        self.config = copy.deepcopy(config)
        self._encoder_config = copy.deepcopy(config)
        if zero_init_encoder:
            self._encoder_config.initializer_range = 0.0
        self.use_one_hot_embeddings = use_one_hot_embeddings
        self.recompute_layers = recompute_layers
        self.seed_generator = keras.random.SeedGenerator()

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Checks the inputs before Keras does anything with them, see `check_inputs`."""
        check_inputs(inputs, self.config)
        return super().__call__(inputs, *args, **kwargs)

    def build_from_config(self, config: dict[str, Any]) -> None:
        """Nothing is left to build when Keras loads a saved model."""

    def get_config(self) -> dict[str, Any]:
        """What `__init__` takes, for saving.

        Raises:
            ValueError: `hidden_act` is a function, which a file cannot hold.
        """
        if callable(self.config.hidden_act):
            raise ValueError(
                "A model whose hidden_act is a function cannot be saved as a Keras file; use the "
                f"name of an activation. Received: {self.config.hidden_act!r}"
            )
        return {
            "name": self.name,
            "dtype": keras.saving.serialize_keras_object(self.dtype_policy),
            "config": self.config.to_dict(),
            "use_one_hot_embeddings": self.use_one_hot_embeddings,
            "recompute_layers": self.recompute_layers,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> "ConfiguredModel":
        """The model that `get_config` described."""
        config = dict(config)
        dtype = keras.saving.deserialize_keras_object(config.pop("dtype"))
        bert_config = BertConfig.from_dict(config.pop("config"))
        return cls(bert_config, dtype=dtype, **config)

    def export(self, filepath: str, *args: Any, **kwargs: Any) -> None:
        """Keras' `Model.export`. Unless `input_signature` says otherwise, `input_names` are taken.

        An output that is a list becomes several: `all_encoder_layers_0` and so on.
        """
        if kwargs.get("input_signature"):
            super().export(filepath, *args, **kwargs)
            return
        inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in self.input_names}
        outputs = self(inputs)
        for name in [name for name, value in outputs.items() if isinstance(value, list)]:
            outputs |= {f"{name}_{index}": one for index, one in enumerate(outputs.pop(name))}
        keras.Model(inputs, outputs).export(filepath, *args, **kwargs)

    def _dropout_seeds(self, count: int, seed: Any, training: bool | None) -> list[Any]:
        """One seed for each part of the model that drops out.

        Without a seed that was passed in (`fit` passes none) the model draws one.
        """
        if not training:
            return [None] * count
        if seed is None:
            seed = self.seed_generator.next()
        return [fold_in(ops.cast(seed, "int32"), index) for index in range(count)]


@keras.saving.register_keras_serializable(package="bert_tf")
class BertModel(ConfiguredModel):
    """Bidirectional transformer encoder (Devlin et al. 2018, section 3).

    Args:
        config: sizes and rates; copied.
        use_one_hot_embeddings: look words up by a matrix product (faster on a TPU).
        recompute_layers: in training, compute the inside of each layer a second time rather than
            keep it.
        zero_init_encoder: start from zeros, which is faster than from random values, for weights that
            are about to be loaded.
        name: scope of the variables.
    """

    locals().update(replaced("BertModel"))

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
        start, dtype = self._encoder_config, self.dtype_policy
        self.embeddings = BertEmbeddings(start, use_one_hot_embeddings, dtype=dtype)
        self.encoder = Encoder(start, recompute_layers, dtype=dtype)
        self.pooler = Pooler(start, dtype=dtype)
        self.build()

    def build(self, input_shape: Any = None) -> None:
        """Creates the variables; nothing depends on the shape of the input."""
        if self.built:
            return
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
            inputs: `input_ids` [B, S], ids of word pieces; optional `input_mask` [B, S], 1 for
                tokens and 0 for padding, by default all ones; optional `segment_ids` [B, S], by
                default zeros; optional `token_positions` int32 [T], see `UnpaddedLayout`: the
                encoder then computes nothing for other positions, whose outputs are 0. Other keys,
                such as labels, are ignored.
            training: whether dropout is on.
            dropout_seed: int32 [2], which decides what is dropped; by default the model draws one.
            return_attention_probs: adds `all_attention_probs`, a list of [B, N, S, S].

        Returns:
            `embedding_output` [B, S, H], `all_encoder_layers`, a list of [B, S, H] without the
            embeddings, `sequence_output` [B, S, H], the last of them, and `pooled_output` [B, H].
        """
        input_ids = inputs["input_ids"]
        input_mask, segment_ids = inputs.get("input_mask"), inputs.get("segment_ids")
        if input_mask is None:
            input_mask = ops.ones_like(input_ids)
        if segment_ids is None:
            segment_ids = ops.zeros_like(input_ids)
        seeds = self._dropout_seeds(2, dropout_seed, training)
        embedding_output = self.embeddings(input_ids, segment_ids, seeds[0], training=training)
        attention_mask = create_attention_mask(input_mask, self.compute_dtype)
        heads = self.config.num_attention_heads
        if "token_positions" in inputs:
            layout = UnpaddedLayout(input_mask, heads, inputs["token_positions"])
        else:
            layout = PaddedLayout(input_mask, heads)
        layers, attention_probs = self.encoder(
            layout.unpad(embedding_output),
            attention_mask,
            seeds[1],
            layout=layout,
            training=training,
            return_attention_probs=return_attention_probs,
        )
        # A compiled function computes only the layers that are used.
        layers = [layout.pad(layer) for layer in layers]
        outputs = {
            "embedding_output": embedding_output,
            "all_encoder_layers": layers,
            "sequence_output": layers[-1],
            "pooled_output": self.pooler(layers[-1]),
        }
        if return_attention_probs:
            outputs["all_attention_probs"] = attention_probs
        return outputs
