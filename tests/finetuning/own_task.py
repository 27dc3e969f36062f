"""A bi-encoder in a user's own package: queries and passages, each padded to its own length.

Shapes: B queries in a batch, P passages of each (the first is relevant), H hidden_size.
"""

import dataclasses
import json

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from bert_tf.data.features import sequence_features
from bert_tf.data.packing import pack_batch
from bert_tf.finetuning.task import Metric, Task, Traits
from bert_tf.modeling.heads import EncoderWithHead
from bert_tf.options import FineTuningOptions, registry
from bert_tf.options.declare import DATA, ROWS, WEIGHTS, option
from bert_tf.tokenization.fast import BatchTokenizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class RetrievalOptions(FineTuningOptions, affects=DATA):
    train_file: str | None = option(None, "JSON lines: query, passages.")
    eval_file: str | None = option(None, "JSON lines: query, passages.")
    max_query_length: int = option(8, "Length of queries.", affects=ROWS)
    temperature: float = option(0.05, "Temperature.", affects=WEIGHTS)
    eval_batch_size: int = option(8, "Batch size.")


@keras.saving.register_keras_serializable(package="own")
class BiEncoder(EncoderWithHead):
    """Unit vectors: `embeddings` [B, H] of texts and, in training, `passages` [B, P, H]."""

    def call(self, inputs, training=None, dropout_seed=None):
        seeds = self._dropout_seeds(2, dropout_seed, training)
        outputs = {"embeddings": self._embed(inputs, training, seeds[0])}
        prefix = "passages/"
        passages = {n.removeprefix(prefix): inputs[n] for n in inputs if n.startswith(prefix)}
        if passages:
            shape = ops.shape(passages["input_ids"])  # [B, P, S]
            flat = {n: ops.reshape(x, (-1, shape[-1])) for n, x in passages.items() if x.ndim == 3}
            flat = {**passages, **flat}
            vectors = self._embed(flat, training, seeds[1])
            outputs["passages"] = ops.reshape(vectors, (*shape[:2], -1))
        return outputs

    def _embed(self, inputs, training, seed):
        names = (*self.input_names, "token_positions")
        own = {name: inputs[name] for name in names if name in inputs}
        output = self.bert(own, training=training, dropout_seed=seed)["sequence_output"]
        mask = ops.expand_dims(ops.cast(own["input_mask"], "float32"), -1)
        return ops.normalize(ops.sum(mask * ops.cast(output, "float32"), 1) / ops.sum(mask, 1))


class Retrieval(Task):
    """In-batch negatives and hard negatives; evaluation ranks all passages for each query."""

    traits = Traits(monitors=(Metric("mrr"),), loss_depends_on=frozenset({"batch"}))

    def __init__(self, options, config, tokenizer):
        self.options, self.config = options, config
        self.tokenizer = BatchTokenizer(tokenizer)

    def read(self, split):
        with open(getattr(self.options, f"{split}_file")) as file:
            rows = [json.loads(line) for line in file]
        if split == "train":
            return rows
        # In evaluation, a row is a text: all queries, then all relevant passages.
        return [row["query"] for row in rows] + [row["passages"][0] for row in rows]

    def features(self, split):
        options = self.options
        if split != "train":
            return sequence_features(options.max_seq_length)
        passages = sequence_features(options.max_seq_length, 2, prefix="passages/")
        return (*sequence_features(options.max_query_length), *passages)

    def featurize(self, examples, split):
        if split != "train":
            return self._pack(examples, self.options.max_seq_length)
        texts = [text for row in examples for text in row["passages"]]
        passages = self._pack(texts, self.options.max_seq_length)
        queries = self._pack([row["query"] for row in examples], self.options.max_query_length)
        shape = (-1, 2, self.options.max_seq_length)
        return queries | {f"passages/{name}": x.reshape(shape) for name, x in passages.items()}

    def _pack(self, texts, length):
        vocab = self.tokenizer.reference.vocab
        ids = self.tokenizer.encode(texts)
        return pack_batch(ids, None, length, vocab["[CLS]"], vocab["[SEP]"])

    def build_model(self, **kwargs):
        return BiEncoder(self.config, **kwargs)

    def loss(self, outputs, batch, training):
        queries, passages = outputs["embeddings"], outputs["passages"]
        # Relevant passages of all queries first, then the hard negatives: [P * B, H].
        candidates = ops.reshape(ops.transpose(passages, (1, 0, 2)), (-1, queries.shape[-1]))
        scores = ops.matmul(queries, ops.transpose(candidates)) / self.options.temperature
        targets = tf.range(tf.shape(scores)[0])
        return tf.nn.sparse_softmax_cross_entropy_with_logits(targets, scores)

    def decode(self, examples, outputs):
        return outputs["embeddings"]

    def metrics(self, examples, predictions):
        queries, passages = np.split(predictions, 2)
        scores = queries @ passages.T
        ranks = (scores > np.diagonal(scores)[:, None]).sum(axis=1)
        return {"eval_mrr": np.float32(np.mean(1 / (1 + ranks)))}

    def from_inputs(self, inputs):
        return inputs


registry.register(
    "own_retrieval", RetrievalOptions, Retrieval, "Trains a bi-encoder.", model=BiEncoder
)
