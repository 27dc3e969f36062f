"""Relation extraction in a user's own package: a head that reads one more input, [B, 2]."""

import dataclasses

import keras
import numpy as np
from keras import ops

from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.data.features import Feature, sequence_features
from bert_tf.data.packing import pack_batch
from bert_tf.finetuning.task import LOSS, Metric, Schema, Task, Traits
from bert_tf.modeling import HeadFormat
from bert_tf.modeling.heads import EncoderWithHead, LinearHead
from bert_tf.modeling.losses import cross_entropy
from bert_tf.options import FineTuningOptions, registry
from bert_tf.options.declare import DATA, option
from bert_tf.tokenization.fast import BatchTokenizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class RelationOptions(FineTuningOptions, affects=DATA):
    train_file: str | None = option(None, "Lines: words, positions of two entities, label.")
    eval_file: str | None = option(None, "The same.")


@keras.saving.register_keras_serializable(package="own")
class RelationClassifier(EncoderWithHead):
    input_names = (*EncoderWithHead.input_names, "entity_positions")
    head_format = HeadFormat(
        "relations",
        {"relation/output_weights": "relation.weight", "relation/output_bias": "relation.bias"},
        architecture="BertForRelations",
        has_pooler=False,
    )

    def __init__(self, config, num_labels, **kwargs):
        super().__init__(config, **kwargs)
        self.num_labels = num_labels
        self.head = LinearHead(num_labels, name="relation", dtype=self.dtype_policy)
        self.head.build((None, 2 * self.config.hidden_size))

    def call(self, inputs, training=None, dropout_seed=None):
        hidden = self.bert(inputs, training=training, dropout_seed=dropout_seed)["sequence_output"]
        positions = ops.expand_dims(inputs["entity_positions"], -1)  # [B, 2, 1]
        entities = ops.take_along_axis(hidden, positions, axis=1)  # [B, 2, H]
        return {"logits": self.head(ops.concatenate([entities[:, 0], entities[:, 1]], axis=-1))}

    def get_config(self):
        return {**super().get_config(), "num_labels": self.num_labels}

    def onnx_outputs(self, graph, hidden):
        positions = graph.node("Unsqueeze", ["entity_positions", graph.ints([-1])])  # [B, 2, 1]
        entities = graph.node("GatherND", [hidden, positions], batch_dims=1)  # [B, 2, H]
        logits = graph.linear(graph.node("Flatten", [entities], axis=1), self.head, "relation")
        return {"logits": (logits, ["batch", self.num_labels])}


class Relations(Task):
    traits = Traits(
        monitors=(Metric("accuracy"), LOSS),
        soft_targets=(("logits", "classes"),),
        exports_texts=False,
    )

    def __init__(self, options, config, tokenizer):
        self.options, self.config = options, config
        self.tokenizer = BatchTokenizer(tokenizer)

    def infer_schema(self, source):
        if isinstance(source, RunFolder):
            return Schema(tuple(source.require_labels()))
        labels = sorted({row[-1] for row in self.read(source)})
        return Schema(tuple(labels), source=getattr(self.options, f"{source}_file"))

    def read(self, split):
        with open(getattr(self.options, f"{split}_file")) as file:
            return [line.rstrip("\n").split("\t") for line in file]

    def features(self, split):
        inputs = sequence_features(self.options.max_seq_length)
        own = (*inputs, Feature("entity_positions", 2))
        return own if split == "predict" else (*own, Feature("label_ids"))

    def featurize(self, examples, split):
        vocab = self.tokenizer.reference.vocab
        ids = self.tokenizer.encode([row[0] for row in examples])
        length = self.options.max_seq_length
        rows = pack_batch(ids, None, length, vocab["[CLS]"], vocab["[SEP]"])
        positions = [[int(row[1]) + 1, int(row[2]) + 1] for row in examples]  # after [CLS]
        rows["entity_positions"] = np.array(positions, np.int32)
        if split != "predict":
            rows["label_ids"] = np.array(
                [self.schema.labels.index(row[3]) for row in examples], np.int32
            )
        return rows

    def build_model(self, **kwargs):
        return RelationClassifier(self.config, len(self.schema.labels), **kwargs)

    def loss(self, outputs, batch, training):
        return cross_entropy(outputs["logits"], batch["label_ids"])

    def decode(self, examples, outputs):
        return [self.schema.labels[index] for index in outputs["logits"].argmax(axis=1)]

    def metrics(self, examples, predictions):
        correct = [row[3] == label for row, label in zip(examples, predictions, strict=True)]
        return {"eval_accuracy": np.float32(np.mean(correct))}

    def from_inputs(self, inputs):
        return [[text, str(first), str(second)] for text, first, second in inputs]


registry.register("own_relations", RelationOptions, Relations, model=RelationClassifier)
