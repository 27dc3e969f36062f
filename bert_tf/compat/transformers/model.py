"""The base of the TensorFlow classes of transformers 4: our models with their interface."""

import collections
import functools
import os
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import keras
from keras import ops

from bert_tf.base.errors import UserError, warn
from bert_tf.checkpoints.formats.configs import POOLER
from bert_tf.checkpoints.formats.detection import find_source, restore
from bert_tf.checkpoints.formats.hugging_face import HuggingFaceSource, write_weights
from bert_tf.checkpoints.model import named_variables
from bert_tf.compat.transformers.collators import make_batches
from bert_tf.compat.transformers.config import BertConfig
from bert_tf.compat.transformers.folders import find_folder
from bert_tf.modeling import BertModel
from bert_tf.modeling.dropout import fold_in
from bert_tf.modeling.gradients import get_upstream
from bert_tf.modeling.inputs import flatten_texts

# Inputs in the order of positional arguments -> names of `BertModel`; None: not supported.
_INPUTS = {
    "input_ids": "input_ids",
    "attention_mask": "input_mask",
    "token_type_ids": "segment_ids",
    "position_ids": None,
    "head_mask": None,
    "inputs_embeds": "word_embeddings",
}
_OPTIONS = ("output_attentions", "output_hidden_states", "return_dict")
_LABELS = ("labels", "start_positions", "end_positions", "next_sentence_label")


class ModelOutput(tuple):
    """Outputs of a model, by attribute, key or index; it is a tuple, in the order of the class."""

    _fields: ClassVar[tuple[str, ...]]

    def __getitem__(self, key: Any) -> Any:
        return getattr(self, key) if isinstance(key, str) else tuple.__getitem__(self, key)

    def __contains__(self, key: Any) -> bool:
        return key in self._fields

    def get(self, key: str, default: Any = None) -> Any:
        """Returns an output, or `default` if there is none of that name."""
        return getattr(self, key) if key in self else default

    def keys(self) -> tuple[str, ...]:
        """Returns the names of the outputs."""
        return self._fields

    def values(self) -> tuple[Any, ...]:
        """Returns the outputs."""
        return tuple(self)

    def items(self) -> Iterator[tuple[str, Any]]:
        """Returns the names of the outputs with their values."""
        return zip(self._fields, self, strict=True)

    to_tuple = values


def make_output(**outputs: Any) -> Any:
    """Returns a `ModelOutput` of those outputs that are not None."""
    present = {name: value for name, value in outputs.items() if value is not None}
    return _output_class(tuple(present))(*present.values())


@functools.cache
def _output_class(names: tuple[str, ...]) -> Any:
    # A named tuple, as Keras and TensorFlow take it apart and put it together again.
    return type("ModelOutput", (ModelOutput, collections.namedtuple("ModelOutput", names)), {})


class _Arguments(keras.layers.Layer):
    """Calls with inputs as transformers accepts them: by position, by name, in a dict or a list."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        first, *rest = args or (None,)
        if "inputs" in kwargs:
            first = kwargs.pop("inputs")
        if isinstance(first, list | tuple) and first and isinstance(first[0], Mapping):
            first = first[0]  # of inputs and labels
        if isinstance(first, Mapping):
            known = {*_INPUTS, *_LABELS, *_OPTIONS}
            if ignored := [name for name in first if name not in known]:
                warn(f"ignored inputs: {', '.join(ignored)}")
            inputs = {name: value for name, value in first.items() if name in known}
        elif isinstance(first, list | tuple):
            inputs = dict(zip(_INPUTS, first, strict=False))
        else:
            inputs = {"input_ids": first}
        inputs |= dict(zip([*_INPUTS][1:], rest, strict=False))
        options = {name: inputs.pop(name) for name in _OPTIONS if name in inputs}
        for name in (*_INPUTS, *_LABELS):
            if name in kwargs:
                inputs[name] = kwargs.pop(name)
        inputs = {name: value for name, value in inputs.items() if value is not None}
        unknown = [name for name in inputs if not _INPUTS.get(name) and name not in _LABELS]
        if unknown or not inputs:
            expected = f"inputs among {', '.join(n for n, ours in _INPUTS.items() if ours)}"
            raise UserError(f"expected {expected}. Received: {', '.join(unknown) or 'none'}")
        return super().__call__(inputs, **options, **kwargs)


@keras.saving.register_keras_serializable(package="bert_tf.transformers")
class TFBertMainLayer(_Arguments):
    """The encoder of a model, with the same inputs and outputs as `TFBertModel`.

    Args:
        config: sizes and settings.
        add_pooling_layer: whether `pooler_output` is an output.
        model: the encoder; by default, a new one.
    """

    def __init__(
        self,
        config: BertConfig,
        add_pooling_layer: bool = True,
        model: BertModel | None = None,
        name: str = "bert",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.config = BertConfig(**config) if isinstance(config, Mapping) else config
        self.model = model or BertModel(self.config.original())
        self.has_pooler = add_pooling_layer
        self.built = True
        # Their name in transformers; not an attribute for Keras, which has them already.
        vars(self.encoder)["layer"] = self.encoder.transformer_layers

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        config = self.config.to_dict()
        return {"name": self.name, "config": config, "add_pooling_layer": self.has_pooler}

    embeddings = property(lambda self: self.model.embeddings)
    pooler = property(lambda self: self.model.pooler)
    encoder = property(lambda self: self.model.encoder)

    def call(
        self,
        inputs: Mapping[str, Any],
        training: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> Any:
        """Returns `last_hidden_state`, `pooler_output`, `hidden_states` and `attentions`."""
        encoded = self.encode(inputs, training, output_attentions)
        return make_output(
            last_hidden_state=encoded["sequence_output"],
            pooler_output=encoded["pooled_output"] if self.has_pooler else None,
            **self.details(encoded, output_attentions, output_hidden_states),
        )

    def encode(
        self,
        inputs: Mapping[str, Any],
        training: bool | None,
        output_attentions: bool | None,
        dropout_seed: Any = None,
        skips_padding: bool = False,
    ) -> dict[str, Any]:
        """Returns the outputs of `BertModel`; `skips_padding` leaves out those of padding."""
        ours = {_INPUTS[n]: value for n, value in inputs.items() if _INPUTS.get(n)}
        if "input_ids" not in ours:
            ours["input_ids"] = ops.zeros(ops.shape(ours["word_embeddings"])[:2], "int32")
        words = ours.pop("word_embeddings", None)
        ours = flatten_texts(ours)
        if words is not None:
            ours["word_embeddings"] = words
        else:
            table = self.model.embeddings.word_embeddings
            ours["word_embeddings"] = _look_up(table, ours["input_ids"])
        mask = ours.get("input_mask")
        if skips_padding and mask is not None and keras.config.backend() == "tensorflow":
            ours["token_positions"] = ops.nonzero(ops.reshape(mask, (-1,)))[0]
        return self.model(
            ours,
            training=training,
            dropout_seed=dropout_seed,
            return_attention_probs=self.wants("output_attentions", output_attentions),
        )

    def details(
        self, encoded: Mapping[str, Any], output_attentions: Any, output_hidden_states: Any
    ) -> dict[str, Any]:
        """Returns `hidden_states` and `attentions`, or None for those that are not asked for."""
        states = attentions = None
        if self.wants("output_hidden_states", output_hidden_states):
            states = (encoded["embedding_output"], *encoded["all_encoder_layers"])
        if self.wants("output_attentions", output_attentions):
            attentions = tuple(encoded["all_attention_probs"])
        return {"hidden_states": states, "attentions": attentions}

    def wants(self, name: str, requested: bool | None) -> bool:
        """Returns whether an output is asked for, in the call or in the configuration."""
        return bool(getattr(self.config, name) if requested is None else requested)


def _look_up(table: Any, ids: Any) -> Any:
    """Returns the rows of a table [V, H] for ids [B, S], [B, S, H].

    The gradient is dense. That of `ops.take` has a row for each occurrence of an id, which the
    optimizers of Keras 3, unlike those of Keras 2, square one by one.
    """

    @ops.custom_gradient
    def run(table: Any) -> Any:
        def gradient(*arguments: Any, upstream: Any = None) -> Any:
            rows = ops.reshape(get_upstream(arguments, upstream), (-1, table.shape[-1]))
            return ops.segment_sum(rows, ops.reshape(ids, (-1,)), table.shape[0])

        return ops.take(table, ids, axis=0), gradient

    return run(ops.copy(table))


class TFBertPreTrainedModel(_Arguments, keras.Model):
    """Base class of the models; `from_pretrained` and `fit` work as in transformers 4.

    `compile` without a loss uses that of the class. A model is called with `input_ids`,
    `attention_mask` and `token_type_ids`, each [B, S], by name, in a dict or in a list, and returns
    a `ModelOutput`.
    """

    # The model of `bert_tf.modeling`; None for a user's own class with a `TFBertMainLayer`.
    model_class: Any = None
    # Format of the head, if not that of `model_class`.
    head_format: Any = None
    # Whether the head reads only the pooled output.
    is_pooled = False
    # Whether the class in transformers has a pooler.
    has_pooler = True
    # Outputs of the head, and the names of their labels.
    head_outputs: tuple[str, ...] = ()
    label_names: tuple[str, ...] = ("labels",)
    # XLA cannot leave out padding.
    supports_jit = False

    def __init__(
        self,
        config: BertConfig,
        *args: Any,
        add_pooling_layer: bool = True,
        name: str | None = None,
        trainable: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, trainable=trainable)
        self.config = config
        self.seeds = keras.random.SeedGenerator()
        self.built = True
        if self.model_class is None:  # a user's own class, which makes its own layers
            return
        self.head_format = self.head_format or self.model_class.head_format
        num_labels = [config.num_labels] if self.head_format.outputs == "labels" else []
        model = self.model_class(config.original(), *num_labels)
        # Our model is only a container here: its parts are the layers of this model.
        self.__dict__["container"] = model
        has_pooler = self.has_pooler and add_pooling_layer
        self.bert = TFBertMainLayer(config, has_pooler, getattr(model, "bert", model))
        self._add_head(model)

    def _add_head(self, model: Any) -> None:
        """Takes the layers of the head from our model."""

    def _predict_head(self, encoded: Any, inputs: Any, seed: Any, training: Any) -> list[Any]:
        """Returns `head_outputs`, from the outputs of `BertModel`."""
        raise NotImplementedError

    def call(
        self,
        inputs: Mapping[str, Any],
        training: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> Any:
        """Returns the loss, if there are labels, the outputs of the head, and those of layers."""
        wanted = output_attentions, output_hidden_states
        has_details = any(map(self.bert.wants, _OPTIONS, wanted))
        seed = self.seeds.next() if training else None
        encoded = self.bert.encode(
            inputs,
            training,
            output_attentions,
            fold_in(seed, 0),
            skips_padding=self.is_pooled and not has_details,
        )
        found = self._predict_head(encoded, inputs, fold_in(seed, 1), training)
        outputs = dict(zip(self.head_outputs, found, strict=True))
        labels, logits = self._pair(inputs, None, outputs)
        loss = None if labels is None else self.hf_compute_loss(labels, logits)
        return make_output(loss=loss, **outputs, **self.bert.details(encoded, *wanted))

    # Training and evaluation.

    def compile(self, optimizer: Any = "rmsprop", loss: Any = None, **kwargs: Any) -> None:
        """Compiles as Keras does; without a loss, `fit` uses that of the class."""
        is_own = loss is None or getattr(loss, "__self__", None) is self
        super().compile(optimizer, loss=None if is_own else loss, **kwargs)
        self.uses_own_loss = is_own

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        """Returns the mean loss of a batch, see `compile`."""
        labels, logits = self._pair(x, y, y_pred)
        if not self.uses_own_loss:
            return super().compute_loss(x, labels, logits, *args, **kwargs)
        if not hasattr(self, "hf_compute_loss"):
            problem = f"{type(self).__name__} has no loss of its own"
            raise UserError(problem, fix="Pass compile(loss=)")
        return ops.mean(self.hf_compute_loss(labels, logits))

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Updates the metrics of `compile`, which compare labels with logits."""
        return super().compute_metrics(x, *self._pair(x, y, y_pred), sample_weight)

    def _pair(self, x: Any, y: Any, y_pred: Any) -> tuple[Any, Any]:
        """Returns labels and outputs of the head, each alone or in a dict by name of the label."""
        names = self.label_names
        if not self.head_outputs:
            return y, y_pred
        logits = dict(zip(names, (y_pred[n] for n in self.head_outputs), strict=True))
        if y is None and isinstance(x, Mapping) and {*names} <= {*x}:
            y = {name: x[name] for name in names}
        if len(names) == 1:
            return next(iter(y.values())) if isinstance(y, Mapping) else y, *logits.values()
        if isinstance(y, list | tuple):
            y = dict(zip(names, y, strict=True))
        return {name: y[name] for name in names} if y else None, logits

    def prepare_tf_dataset(self, dataset: Any, *args: Any, **kwargs: Any) -> Any:
        """Returns batches of inputs and labels, see `collators.make_batches`."""
        return make_batches(_INPUTS, self.label_names, dataset, *args, **kwargs)

    # Files.

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | os.PathLike,
        *args: Any,
        config: BertConfig | None = None,
        **kwargs: Any,
    ) -> Any:
        """Creates a model with the weights of a folder, in any format that bert_tf reads.

        Args:
            pretrained_model_name_or_path: the folder, or its name in the folder $BERT_TF_MODELS.
            args: arguments of the constructor.
            config: the configuration; by default, that of the folder.
            kwargs: values of the configuration to replace, such as `num_labels`, and arguments of
                the constructor. Arguments about downloads have no effect.

        Raises:
            UserError: there is no such model, or its shapes do not fit the configuration.
        """
        folder = find_folder(pretrained_model_name_or_path)
        config = BertConfig.from_pretrained(folder) if config is None else config
        settings = {name: value for name, value in kwargs.items() if hasattr(config, name)}
        config = BertConfig(**{**config.to_dict(), **settings})
        model = cls(config, *args, **{n: x for n, x in kwargs.items() if n not in settings})
        model.read_weights(folder)
        return model

    def read_weights(self, path: str | os.PathLike) -> None:
        """Assigns the weights of a folder or file; a head that it lacks keeps its values."""
        layers = [layer for layer in self.layers if isinstance(layer, TFBertMainLayer)]
        model = vars(self).get("container") or layers[0].model
        restored = restore(model, find_source(os.fspath(path)))
        for layer in layers:
            layer.has_pooler &= POOLER[0] in restored.restored

    def save_pretrained(self, folder: str | os.PathLike, **kwargs: Any) -> None:
        """Writes `model.safetensors` and `config.json`, which transformers 5 reads."""
        BertConfig(**self._settings()).save_pretrained(folder)
        weights = {
            name: ops.convert_to_numpy(variable)
            for name, variable in named_variables(vars(self)["container"]).items()
            if name.startswith("bert/") or name in self.head_format.variables
        }
        write_weights(os.fspath(folder), self.head_format, weights)

    def load_weights(self, filepath: Any, *args: Any, **kwargs: Any) -> None:
        """Loads weights as Keras does, or those of a `tf_model.h5` or the like."""
        path = os.fspath(filepath)
        if path.endswith(".h5") and not path.endswith(".weights.h5"):
            restore(vars(self)["container"], HuggingFaceSource(path, self._settings()))
        else:
            super().load_weights(filepath, *args, **kwargs)

    def _settings(self) -> dict[str, Any]:
        """Returns the content of a config.json."""
        if not self.head_format:
            problem = f"{type(self).__name__} has a head of your own, which has no such format"
            raise UserError(problem, fix="Use save_weights and load_weights with 'my.weights.h5'")
        return {**self.config.to_dict(), "architectures": [self.head_format.architecture]}

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {"name": self.name, "config": self.config.to_dict()}

    @classmethod
    def from_config(cls, config: Any, custom_objects: Any = None) -> Any:
        """Creates a model with random weights from a `BertConfig` or the value of `get_config`."""
        if isinstance(config, BertConfig):
            return cls(config)
        return cls(BertConfig(**config["config"]), name=config["name"])


TFPreTrainedModel = TFBertPreTrainedModel
keras_serializable = keras.saving.register_keras_serializable()


def shape_list(tensor: Any) -> list[Any]:
    """Returns the sizes of a tensor: numbers where they are known, otherwise tensors."""
    return [*ops.shape(tensor)]


def get_initializer(initializer_range: float = 0.02) -> keras.initializers.Initializer:
    """Returns the initializer of BERT's weights."""
    return keras.initializers.TruncatedNormal(stddev=initializer_range)
