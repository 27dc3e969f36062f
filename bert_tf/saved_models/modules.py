"""Writes SavedModels: fine-tuned models, encoders and preprocessors.

Shapes: B texts, text pairs or examples, S sequence length, C choices (multiple choice).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_tf.base import files
from bert_tf.checkpoints.formats.saved_model import ENCODER_INPUTS
from bert_tf.data.features import Feature
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.graph import GraphTokenizer

Inputs = dict[str, Any]

# Type checkers do not know the class methods of tf.RaggedTensor.
_ragged: Any = tf.RaggedTensor


class TextInputs(tf.Module):
    """Converts texts or text pairs to model inputs of at most `max_seq_length` tokens."""

    def __init__(self, tokenizer: FullTokenizer, max_seq_length: int) -> None:
        super().__init__()
        self.tokenize = GraphTokenizer(tokenizer)
        self.max_seq_length = max_seq_length
        self.cls_id, self.sep_id = tokenizer.vocab["[CLS]"], tokenizer.vocab["[SEP]"]

    def __call__(self, text: tf.Tensor, text_pair: tf.Tensor | None = None) -> Inputs:
        """Returns `input_ids`, `input_mask` and `segment_ids` [B, S] of texts or text pairs [B]."""
        a = self.tokenize(text)
        b = None if text_pair is None else self.tokenize(text_pair)
        return pack(a, b, self.max_seq_length, self.cls_id, self.sep_id)


def save_task(
    folder: str,
    model: keras.Model,
    serve: Callable[[Any, Inputs], Mapping[str, Any]],
    text_inputs: TextInputs | None,
    features: Sequence[Feature],
    assets: Mapping[str, str],
    text_pairs: bool = False,
    jit_compile: bool = False,
) -> None:
    """Writes a fine-tuned model with the signatures `serving_default`, `ids` and `examples`.

    Models that take texts also have the signature `pairs`.

    Args:
        folder: path of the new SavedModel.
        model: the model.
        serve: maps (model outputs, model inputs) to signature outputs, which may be strings.
        text_inputs: converts texts to inputs; None for a model that only takes ids.
        features: the model's inputs, as they are in a `tf.train.Example`.
        assets: attribute name -> path of a file to save as an asset.
        text_pairs: whether `serving_default` takes text pairs instead of texts.
        jit_compile: whether to compile the model with XLA, once per batch shape.
    """
    module: Any = tf.Module()
    # Only variables in an attribute of a module are saved.
    module.weights = [variable.value for variable in model.variables]
    module.text_inputs = text_inputs
    for name, path in assets.items():
        setattr(module, name, tf.saved_model.Asset(path))

    # Only the model is compiled: XLA supports neither text ops nor strings.
    @tf.function(jit_compile=jit_compile)
    def compute(inputs: Inputs) -> dict[str, Any]:
        return model(inputs, training=False)

    def run(inputs: Inputs) -> dict[str, Any]:
        return dict(serve(compute(inputs), inputs))

    names = [feature.name for feature in features]
    specs = [
        tf.TensorSpec(
            [None, *f.shape[:-1], None] if f.per_token else [None, *f.shape], tf.int32, f.name
        )
        for f in features
    ]
    parsers = {f.name: tf.io.FixedLenFeature(f.shape, tf.int64) for f in features}

    @tf.function(input_signature=specs)
    def ids(*values: Any) -> dict[str, Any]:
        return run(dict(zip(names, values, strict=True)))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "examples")])
    def examples(examples: Any) -> dict[str, Any]:
        parsed: Any = tf.io.parse_example(examples, parsers)
        return run({name: tf.cast(ids, tf.int32) for name, ids in parsed.items()})

    signatures = {"serving_default": ids, "ids": ids, "examples": examples}
    if text_inputs is not None:
        text, pair = (tf.TensorSpec([None], tf.string, name) for name in ("text", "text_pair"))

        @tf.function(input_signature=[text])
        def texts(text: Any) -> dict[str, Any]:
            return run(text_inputs(text))

        @tf.function(input_signature=[text, pair])
        def pairs(text: Any, text_pair: Any) -> dict[str, Any]:
            return run(text_inputs(text, text_pair))

        signatures |= {"serving_default": pairs if text_pairs else texts, "pairs": pairs}
    _save(module, folder, signatures)


def save_encoder(folder: str, model: keras.Model, vocab_path: str, do_lower_case: bool) -> None:
    """Writes a trainable `BertModel` with the interface of the encoders on TensorFlow Hub.

    A call takes a dict of `input_word_ids`, `input_mask` and `input_type_ids`, int32 [B, S]. It
    returns a dict of `pooled_output` (also as `default`), `sequence_output`, and `encoder_outputs`,
    a list of the layers' outputs. The vocabulary is saved as an asset.
    """
    # Not a `tf.Module`, in which `variables` is a property.
    module: Any = tf.__internal__.tracking.AutoTrackable()
    # Programs that train TensorFlow Hub models use the following attributes.
    module.variables = [variable.value for variable in model.variables]
    module.trainable_variables = [variable.value for variable in model.trainable_variables]
    module.vocab_file = tf.saved_model.Asset(vocab_path)
    module.do_lower_case = tf.Variable(tf.constant(do_lower_case), trainable=False)
    module.regularization_losses = []
    specs = {name: tf.TensorSpec([None, None], tf.int32, name) for name in ENCODER_INPUTS}

    @tf.function
    def call(inputs: Inputs, training: bool = False) -> dict[str, Any]:
        values = [inputs[name] for name in ENCODER_INPUTS]
        outputs = model(dict(zip(model.input_names, values, strict=True)), training=training)
        return {
            "pooled_output": outputs["pooled_output"],
            "sequence_output": outputs["sequence_output"],
            "encoder_outputs": outputs["all_encoder_layers"],
            "default": outputs["pooled_output"],
        }

    @tf.function
    def serve(**inputs: tf.Tensor) -> dict[str, Any]:
        # Signatures cannot return lists, such as `encoder_outputs`.
        outputs = call(inputs, training=False)
        return {name: value for name, value in outputs.items() if name != "encoder_outputs"}

    for training in (True, False):
        call.get_concrete_function(specs, training=training)
    module.__call__ = call
    _save(module, folder, {"serving_default": serve.get_concrete_function(**specs)})


def save_preprocessor(
    folder: str, tokenizer: FullTokenizer, vocab_path: str, max_seq_length: int
) -> None:
    """Writes a module that converts texts [B] to the inputs of `save_encoder`'s module.

    It does so in one call or with two methods. `tokenize(texts)` returns ids, ragged [B, tokens].
    `bert_pack_inputs([ids], seq_length=128)`, or `bert_pack_inputs([ids, pair_ids])` for text
    pairs, returns the inputs, int32 [B, seq_length].
    """
    module: Any = tf.Module()
    module.vocab_file = tf.saved_model.Asset(vocab_path)
    module.text_inputs = text_inputs = TextInputs(tokenizer, max_seq_length)
    texts = tf.TensorSpec([None], tf.string, "text")
    module.tokenize = tf.function(text_inputs.tokenize.__call__, input_signature=[texts])

    @tf.function
    def pack_inputs(segments: list[tf.RaggedTensor], seq_length: Any = max_seq_length) -> Inputs:
        b = segments[1] if len(segments) > 1 else None
        ids = (text_inputs.cls_id, text_inputs.sep_id)
        packed = pack(segments[0], b, seq_length, *ids, pad_to_max=True)
        return dict(zip(ENCODER_INPUTS, packed.values(), strict=True))

    module.bert_pack_inputs = pack_inputs
    ids = tf.RaggedTensorSpec([None, None], tf.int32, ragged_rank=1)
    length = tf.TensorSpec([], tf.int32, "seq_length")
    for segments in ([ids], [ids, ids]):
        pack_inputs.get_concrete_function(segments)
        pack_inputs.get_concrete_function(segments, seq_length=length)

    @tf.function(input_signature=[texts])
    def call(text: tf.Tensor) -> Inputs:
        return pack_inputs([module.tokenize(text)])

    module.__call__ = call
    _save(module, folder, {"serving_default": call})


def _save(module: Any, folder: str, signatures: Mapping[str, Any]) -> None:
    with files.wrap_errors("write", folder):
        tf.saved_model.save(module, folder, signatures=signatures)


def pack(
    a: tf.RaggedTensor,
    b: tf.RaggedTensor | None,
    max_seq_length: Any,
    cls_id: int,
    sep_id: int,
    pad_to_max: bool = False,
) -> Inputs:
    """Packs `[CLS] a [SEP] b [SEP]` with TensorFlow ops, as `data.packing` does with NumPy.

    Truncates texts `a`, or pairs of `a` and `b`, which are ragged ids [B, tokens]. If the second
    text of a pair is empty, the first is packed as a single text. Rows are padded to the longest
    row, or to `max_seq_length` if `pad_to_max` is True.

    Returns:
        `input_ids`, `input_mask` and `segment_ids`: int32 [B, S].
    """
    max_seq_length = tf.cast(max_seq_length, tf.int64)
    length_a = a.row_lengths()
    length_b = b.row_lengths() if b is not None else tf.zeros_like(length_a)
    # The number of tokens besides [CLS] and one or two [SEP].
    room = max_seq_length - (2 + tf.cast(length_b > 0, tf.int64))
    # As in the original, the longer text is truncated to the length of the other, and then both
    # are truncated alternately, beginning with `b`.
    length_b = tf.minimum(length_b, tf.maximum(room // 2, room - length_a))
    length_a = tf.minimum(length_a, room - length_b)
    cls, sep = (tf.fill([a.nrows(), 1], token) for token in (cls_id, sep_id))
    parts: Any = [cls, _truncate(a, length_a), sep]
    row = tf.concat(parts, axis=1)
    segments = tf.zeros_like(row)
    if b is not None:
        second = _truncate(b, length_b)
        # As in the original, a second text that lost all tokens by truncation gets no [SEP].
        has_second = tf.cast(length_b > 0, tf.int64)
        second_sep = tf.fill([tf.reduce_sum(has_second)], sep_id)
        second = tf.concat([second, _ragged.from_row_lengths(second_sep, has_second)], axis=1)
        segments = tf.concat([segments, tf.ones_like(second)], axis=1)
        row = tf.concat([row, second], axis=1)
    rows = {"input_ids": row, "input_mask": tf.ones_like(row), "segment_ids": segments}
    dense = {name: values.to_tensor() for name, values in rows.items()}
    # Without this minimum, the rows of an empty batch would have length 0.
    min_length = max_seq_length if pad_to_max else tf.constant(2, tf.int64)
    padding: Any = tf.maximum(min_length - tf.shape(dense["input_ids"], out_type=tf.int64)[1], 0)
    return {name: tf.pad(values, [[0, 0], [0, padding]]) for name, values in dense.items()}


def _truncate(rows: tf.RaggedTensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    starts = rows.row_starts()
    return tf.gather(rows.flat_values, tf.ragged.range(starts, starts + lengths))
