"""Task heads and the models that use them.

The letters in shapes are those of `layers.py`, and L for the number of labels.
"""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from bert_tf.config import BertConfig
from bert_tf.modeling.bert import BertModel
from bert_tf.modeling.configured_model import ConfiguredModel, HeadFormat
from bert_tf.modeling.dropout import Dropout
from bert_tf.modeling.inputs import check_positions
from bert_tf.modeling.layers import create_initializer, dense_layer, layer_norm_layer

# In the original BERT, a classifier's variables `output_weights` and `output_bias` are outside any
# scope. A Keras layer needs a name, which `checkpoint_name` removes.
ROOT_HEAD = "classifier"

# As in the original, these do not depend on the configuration.
HEAD_INITIALIZER_RANGE = 0.02  # for the heads of classifiers and SQuAD
CLASSIFIER_DROPOUT = 0.1

# Variables of heads: name in the original -> name in transformers.
_CLASSIFIER = {"output_bias": "classifier.bias", "output_weights": "classifier.weight"}
_SPAN = {
    "cls/squad/output_bias": "qa_outputs.bias",
    "cls/squad/output_weights": "qa_outputs.weight",
}
_TRANSFORM = "cls/predictions/transform"
_MASKED_LM = {
    "cls/predictions/output_bias": "cls.predictions.bias",
    f"{_TRANSFORM}/LayerNorm/beta": "cls.predictions.transform.LayerNorm.bias",
    f"{_TRANSFORM}/LayerNorm/gamma": "cls.predictions.transform.LayerNorm.weight",
    f"{_TRANSFORM}/dense/bias": "cls.predictions.transform.dense.bias",
    f"{_TRANSFORM}/dense/kernel": "cls.predictions.transform.dense.weight",
}
_NEXT_SENTENCE = {
    "cls/seq_relationship/output_bias": "cls.seq_relationship.bias",
    "cls/seq_relationship/output_weights": "cls.seq_relationship.weight",
}
_ENTITIES = {
    f"entities/{name}": f"entities.{name}"
    for name in ("output_bias", "output_weights", "marker_ids")
}
_INT32 = 6  # in ONNX
# bert_tf has no class for this head, which files in other formats may have.
MASKED_LM = HeadFormat("masked_lm", _MASKED_LM, "BertForMaskedLM", False, "fixed")


def checkpoint_name(variable: keras.Variable) -> str:
    """Returns a variable's name in a checkpoint of the original BERT."""
    return variable.path.removeprefix(f"{ROOT_HEAD}/")


class LinearHead(keras.layers.Layer):
    """Computes the logits x W^T + b; W is stored as [L, H], as in the original's heads."""

    def __init__(
        self, num_labels: int, initializer_range: float = HEAD_INITIALIZER_RANGE, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.num_labels = num_labels
        self.initializer_range = initializer_range

    def build(self, input_shape: Any) -> None:
        """Creates `output_weights` [L, H] and `output_bias` [L]."""
        self.output_weights = self.add_weight(
            shape=(self.num_labels, input_shape[-1]),
            initializer=create_initializer(self.initializer_range),
            name="output_weights",
        )
        self.output_bias = self.add_weight(
            shape=(self.num_labels,), initializer="zeros", name="output_bias"
        )

    def call(self, x: Any) -> Any:
        """[.., H] -> logits [.., L], which are always cast to float32."""
        logits = ops.matmul(x, ops.transpose(self.output_weights)) + self.output_bias
        return ops.cast(logits, "float32")


class MaskedLMHead(keras.layers.Layer):
    """Vocabulary logits at the masked positions; shares the word embedding table."""

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(name="predictions", **kwargs)
        self.vocab_size = config.vocab_size
        hidden_act = config.hidden_act
        self.dense = dense_layer(config.hidden_size, config, self.dtype_policy, hidden_act)
        self.layer_norm = layer_norm_layer(self.dtype_policy)

    def build(self, input_shape: Any) -> None:
        """Builds the dense layer and layer norm for [B, P, H], and creates `output_bias` [V]."""
        with keras.name_scope("transform"):
            self.dense.build(input_shape)
            self.layer_norm.build(input_shape)
        self.output_bias = self.add_weight(
            shape=(self.vocab_size,), initializer="zeros", name="output_bias"
        )

    def call(self, sequence_output: Any, positions: Any, word_embeddings: Any) -> Any:
        """[B, S, H], positions [B, P] and word embeddings [V, H] -> logits [B, P, V]."""
        masked = ops.take_along_axis(
            sequence_output, ops.expand_dims(positions, -1), axis=1
        )  # [B, P, H]
        hidden = self.layer_norm(self.dense(masked))  # [B, P, H]
        return ops.matmul(hidden, ops.transpose(word_embeddings)) + self.output_bias


class EncoderWithHead(ConfiguredModel):
    """Base class of models with a head; takes the arguments of `BertModel`.

    Example:
        @keras.saving.register_keras_serializable(package="my_package")
        class Regressor(EncoderWithHead):
            # To convert the model to other formats. The keys are names of variables.
            head_format = HeadFormat(
                "regression",
                {"regressor/output_weights": "head.weight", "regressor/output_bias": "head.bias"},
                outputs="one",
            )

            def __init__(self, config, **kwargs):
                super().__init__(config, **kwargs)
                self.head = LinearHead(1, name="regressor", dtype=self.dtype_policy)
                self.head.build((None, self.config.hidden_size))

            def call(self, inputs, training=None, dropout_seed=None):
                encoded = self.bert(inputs, training=training, dropout_seed=dropout_seed)
                return {"logits": self.head(encoded["pooled_output"])}

            # To export the model to ONNX: output name -> (name in the graph, dimensions).
            def onnx_outputs(self, graph, hidden):
                pooled_output = graph.pooler(hidden, self.bert)
                return {"logits": (graph.linear(pooled_output, self.head, "head"), ["batch", 1])}

    `graph` is a `saved_models.onnx_graph.Graph`, and `hidden` the name of `sequence_output` in it.

    Attributes:
        bert: the encoder.
        encoded_shape: shape of the encoder's `sequence_output`, to build the head with.
    """

    # False freezes a pooler that the head does not use: as in the original, it then gets no weight
    # decay and no Adam slots.
    trains_pooler = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in ("head_format", "onnx_outputs"):  # an inherited one may be of another head
            owner = next((x for x in cls.__mro__ if name in vars(x)), cls)
            if any(getattr(cls, x, 0) is not getattr(owner, x, 0) for x in ("call", "pool")):
                setattr(cls, name, None)

    def __init__(self, config: BertConfig, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        self.bert = BertModel(
            self.config,
            self.use_one_hot_embeddings,
            self.recompute_layers,
            self.zero_init_encoder,
            dtype=self.dtype_policy,
        )
        self.bert.pooler.trainable = self.trains_pooler
        self.encoded_shape = (None, None, self.config.hidden_size)
        self.built = True

    def __call__(
        self, inputs: Any, *args: Any, return_attention_probs: bool = False, **kwargs: Any
    ) -> Any:
        """Calls the model; `return_attention_probs` adds the encoder's `all_attention_probs`.

        It runs the encoder once more. Not for multiple choice, whose encoder has other rows.
        """
        outputs = super().__call__(inputs, *args, **kwargs)
        if not return_attention_probs:
            return outputs
        encoded = self.bert(inputs, *args, return_attention_probs=True, **kwargs)
        return {**outputs, "all_attention_probs": encoded["all_attention_probs"]}


class _LabelModel(EncoderWithHead):
    """A model with dropout and a linear head for `num_labels` labels, see `ROOT_HEAD`."""

    # Name of the encoder output that the head takes.
    encoder_output = "pooled_output"
    exported_outputs = ("logits",)

    def __init__(self, config: BertConfig, num_labels: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        if not isinstance(num_labels, int) or num_labels < 1:
            raise ValueError(f"num_labels must be a positive integer. Received: {num_labels!r}")
        self.num_labels = num_labels
        self.dropout = Dropout(CLASSIFIER_DROPOUT, dtype=self.dtype_policy)
        self.head = self.make_head()

    def make_head(self) -> LinearHead:
        """Returns the head, built for the shape of what `pool` returns."""
        head = LinearHead(self.num_labels, name=ROOT_HEAD, dtype=self.dtype_policy)
        head.build(self.encoded_shape)
        return head

    def pool(self, encoded: Any, inputs: Any) -> Any:
        """Selects what the head takes from the outputs of the encoder."""
        return encoded[self.encoder_output]

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of `__init__`."""
        return {**super().get_config(), "num_labels": self.num_labels}

    def call(
        self, inputs: dict[str, Any], training: bool | None = None, dropout_seed: Any = None
    ) -> dict[str, Any]:
        """Inputs of `BertModel` -> `logits` and `probabilities`, both [B, L] or [B, S, L]."""
        seeds = self._dropout_seeds(2, dropout_seed, training)
        encoded = self.bert.call_unchecked(inputs, training=training, dropout_seed=seeds[0])
        x = self.pool(encoded, inputs)
        logits = self.head(self.dropout(x, seeds[1], training=training))
        # A single output (regression) has probability 1; Keras' softmax would warn about it.
        normalize = ops.softmax if self.num_labels > 1 else ops.ones_like
        return {"logits": logits, "probabilities": normalize(logits)}


@keras.saving.register_keras_serializable(package="bert_tf")
class BertClassifier(_LabelModel):
    """Classifies sequences, from `pooled_output` (section 4.1 of the paper).

    Takes the arguments of `BertModel`, with `num_labels` (L) after `config`.
    """

    head_format = HeadFormat("classification", _CLASSIFIER, "BertForSequenceClassification")

    def onnx_outputs(self, graph: Any, hidden: str) -> dict[str, Any]:
        """Adds the head to an ONNX graph."""
        logits = graph.linear(graph.pooler(hidden, self.bert), self.head, "classifier")
        return {"logits": (logits, ["batch", self.num_labels])}


@keras.saving.register_keras_serializable(package="bert_tf")
class BertEntityClassifier(BertClassifier):
    """Classifies texts from the states of two entity markers (Baldini Soares et al. 2019).

    Of a marker that occurs several times, the first counts; for one that is missing, `[CLS]`.
    Takes the arguments of `BertClassifier`, and the ids of the two markers, `marker_ids`.
    """

    head_format = HeadFormat("entities", _ENTITIES, has_pooler=False)
    trains_pooler = False

    def __init__(self, *args: Any, marker_ids: Sequence[int] = (0, 0), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.marker_ids.assign(ops.convert_to_tensor([*marker_ids], "float32"))

    def make_head(self) -> LinearHead:
        """Returns the head, built for the states of both markers."""
        head = LinearHead(self.num_labels, name="entities", dtype=self.dtype_policy)
        # A variable, to stay with the weights in all file formats; never in the compute dtype,
        # which rounds ids.
        self.marker_ids = head.add_weight(
            shape=(2,), initializer="zeros", trainable=False, autocast=False, name="marker_ids"
        )
        head.build((None, 2 * self.config.hidden_size))
        return head

    def pool(self, encoded: Any, inputs: Any) -> Any:
        """Returns the states of the markers, [B, 2H]."""
        ids = ops.expand_dims(inputs["input_ids"], 1)  # [B, 1, S]
        markers = ops.reshape(ops.cast(self.marker_ids, "int32"), (1, 2, 1))
        positions = ops.argmax(ops.cast(ops.equal(ids, markers), "int32"), axis=-1)  # [B, 2]
        states = ops.take_along_axis(
            encoded["sequence_output"], ops.expand_dims(positions, -1), axis=1
        )
        return ops.reshape(states, (-1, 2 * self.config.hidden_size))

    def onnx_outputs(self, graph: Any, hidden: str) -> dict[str, Any]:
        """Adds the head to an ONNX graph."""
        markers = [int(marker) for marker in ops.convert_to_numpy(self.marker_ids)]
        ids = graph.node("Unsqueeze", ["input_ids", graph.ints([1])])  # [B, 1, S]
        columns = graph.node("Unsqueeze", [graph.ints(markers), graph.ints([0, 2])])
        found = graph.node("Cast", [graph.node("Equal", [ids, columns])], to=_INT32)
        positions = graph.node("ArgMax", [found], axis=-1, keepdims=1)  # [B, 2, 1]
        states = graph.node("GatherND", [hidden, positions], batch_dims=1)  # [B, 2, H]
        logits = graph.linear(graph.node("Flatten", [states], axis=1), self.head, "entities")
        return {"logits": (logits, ["batch", self.num_labels])}


@keras.saving.register_keras_serializable(package="bert_tf")
class BertTokenClassifier(_LabelModel):
    """Classifies tokens, from `sequence_output` (section 5.3 of the paper).

    Takes the arguments of `BertModel`, with `num_labels` (L) after `config`.
    """

    head_format = HeadFormat("token", _CLASSIFIER, "BertForTokenClassification", False)
    trains_pooler = False
    encoder_output = "sequence_output"

    def onnx_outputs(self, graph: Any, hidden: str) -> dict[str, Any]:
        """Adds the head to an ONNX graph."""
        logits = graph.linear(hidden, self.head, "classifier")
        return {"logits": (logits, ["batch", "sequence", self.num_labels])}


@keras.saving.register_keras_serializable(package="bert_tf")
class BertSpanLabeler(EncoderWithHead):
    """Predicts start and end of an answer in the sequence (section 4.2 of the paper).

    Takes the arguments of `BertModel`.
    """

    head_format = HeadFormat("span", _SPAN, "BertForQuestionAnswering", False, "fixed")
    trains_pooler = False

    def __init__(self, config: BertConfig, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        self.head = LinearHead(2, name="squad", dtype=self.dtype_policy)
        with keras.name_scope("cls"):
            self.head.build(self.encoded_shape)

    def call(
        self, inputs: dict[str, Any], training: bool | None = None, dropout_seed: Any = None
    ) -> dict[str, Any]:
        """Inputs of `BertModel` -> `start_logits` and `end_logits`, both [B, S]."""
        encoded = self.bert.call_unchecked(inputs, training=training, dropout_seed=dropout_seed)
        logits = self.head(encoded["sequence_output"])  # [B, S, 2]
        return {"start_logits": logits[:, :, 0], "end_logits": logits[:, :, 1]}

    def onnx_outputs(self, graph: Any, hidden: str) -> dict[str, Any]:
        """Adds the head to an ONNX graph."""
        start, end = graph.split(graph.linear(hidden, self.head, "squad"), 2, "squad")
        shape = ["batch", "sequence"]
        return {"start_logits": (start, shape), "end_logits": (end, shape)}


@keras.saving.register_keras_serializable(package="bert_tf")
class BertPretrainer(EncoderWithHead):
    """A model for pre-training: masked LM and next sentence prediction (section 3.1 of the paper).

    Takes the arguments of `BertModel`.
    """

    head_format = HeadFormat(
        "pretraining", {**_MASKED_LM, **_NEXT_SENTENCE}, "BertForPreTraining", outputs="fixed"
    )
    input_names = (*ConfiguredModel.input_names, "masked_lm_positions")

    def __init__(self, config: BertConfig, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        self.masked_lm = MaskedLMHead(self.config, dtype=self.dtype_policy)
        self.next_sentence = LinearHead(
            2, self.config.initializer_range, name="seq_relationship", dtype=self.dtype_policy
        )
        with keras.name_scope("cls"):
            self.masked_lm.build(self.encoded_shape)
            self.next_sentence.build(self.encoded_shape)

    def call(
        self, inputs: dict[str, Any], training: bool | None = None, dropout_seed: Any = None
    ) -> dict[str, Any]:
        """Predicts masked tokens and whether the second text follows the first.

        Args:
            inputs: inputs of `BertModel`, and `masked_lm_positions` [B, P].
            training: whether to apply dropout.
            dropout_seed: see `BertModel`.

        Returns:
            `masked_lm_logits` [B, P, V] and `next_sentence_logits` [B, 2], where class 0 means
            that the second text follows and class 1 that it is random.
        """
        positions = inputs["masked_lm_positions"]
        check_positions(positions, inputs["input_ids"].shape)
        encoded = self.bert.call_unchecked(inputs, training=training, dropout_seed=dropout_seed)
        return {
            "masked_lm_logits": self.masked_lm(
                encoded["sequence_output"],
                positions,
                self.bert.embeddings.word_embeddings,
            ),
            "next_sentence_logits": self.next_sentence(encoded["pooled_output"]),
        }
