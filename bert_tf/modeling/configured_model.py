"""The base class of the models: how they are created, called, saved and exported."""

import copy
import dataclasses
import os
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, Literal, NoReturn

import keras
from keras import ops

from bert_tf.base.errors import UserError
from bert_tf.base.foreign_names import advice_of
from bert_tf.config import BertConfig
from bert_tf.modeling.dropout import fold_in
from bert_tf.modeling.inputs import check_inputs
from bert_tf.options import registry


@dataclasses.dataclass(eq=False)
class HeadFormat:
    """Describes how files store a model's head: the class attribute `head_format` of a model.

    Models without it can be trained, used and exported, but not converted to other formats. For an
    example, see `EncoderWithHead`.

    Args:
        name: name of the head, such as "span"; different for each class.
        variables: variable name in original BERT checkpoints -> name in Hugging Face transformers.
        architecture: name of the class in transformers; None if there is none.
        has_pooler: whether the class in transformers has a pooler.
        outputs: "labels" for one output per label: the constructor takes `num_labels` after
            `config`, and the first axis of the first of `variables` has this size. "one" for a
            single output, which labels do not name. "fixed" for all other heads.

    Attributes:
        model: the class that has this attribute; None if bert_tf has no class for the head.
    """

    name: str
    variables: Mapping[str, str]
    architecture: str | None = None
    has_pooler: bool = True
    outputs: Literal["labels", "one", "fixed"] = "labels"
    model: Any = dataclasses.field(default=None, init=False)

    def __set_name__(self, owner: type, name: str) -> None:
        # Python calls this when it creates the class.
        self.model = owner

    @property
    def has_labels(self) -> bool:
        """Whether configurations list labels; that of a single output is a placeholder."""
        return self.outputs != "fixed"

    def count_outputs(self, shapes: Mapping[str, Sequence[int]]) -> int:
        """Returns the number of outputs with labels; `shapes` maps variable names to shapes."""
        first = next(iter(self.variables), "")
        return [*shapes.get(first, ()), 0][0] if self.has_labels else 0


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
        is_original = "is_training" in kwargs or "input_ids" in kwargs or not are_bools
        if is_original or not isinstance(config, BertConfig):
            use = "use BertModel(BertConfig.from_json_file(path))(inputs)"
            raise UserError(f"These arguments only exist in the TensorFlow 1 code: {use}")
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

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises a UserError, which says what to use instead."""
        raise UserError(advice_of(["ConfiguredModel"], "from_pretrained"))

    from_preset = from_pretrained

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls the model, after checking the inputs with clearer error messages than Keras'."""
        for name in kwargs:
            if advice := advice_of(["ConfiguredModel"], name):
                raise UserError(f"The model has no argument {name!r}", fix=advice)
        check_inputs(inputs, self.config, self.input_rank, self.input_names)
        return super().__call__(inputs, *args, **kwargs)

    def fit(self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Trains as Keras does, after checking the values of `x` and `y`, unless `x` is a dataset.

        Raises:
            UserError: labels are not an array of ids.
        """
        self._check(x, y)
        return super().fit(x, y, *args, **kwargs)

    def evaluate(self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Evaluates as Keras does, after the same checks."""
        self._check(x, y)
        return super().evaluate(x, y, *args, **kwargs)

    def predict(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Predicts as Keras does, after the same check."""
        self._check(x)
        return super().predict(x, *args, **kwargs)

    def _check(self, x: Any, y: Any = None) -> None:
        # A compiled step cannot check values, and would ignore segments out of range. For texts,
        # Keras' own errors are about dtypes.
        if isinstance(x, dict | list | tuple | str) or hasattr(x, "dtype"):
            check_inputs(x, self.config, self.input_rank)
        first = next(iter(y), None) if isinstance(y, list) or hasattr(y, "dtype") else None
        count = getattr(self, "num_labels", 1)
        is_list = isinstance(y, list) and isinstance(first, int)
        is_outside = count > 1 and isinstance(first, Integral) and max(y) >= count
        if isinstance(first, str) or is_list or is_outside:
            expected = f"Labels must be an array of ids from 0 to {count - 1}"
            raise UserError(f"{expected}. Received: {y!r:.60}")

    def build_from_config(self, config: dict[str, Any]) -> None:
        """Does nothing: when Keras loads a saved model, the constructor has already built it."""

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of `__init__`; raises ValueError if `hidden_act` is a function."""
        if callable(act := self.config.hidden_act):
            raise ValueError(f"Cannot save a model whose hidden_act is a function: {act!r}")
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
