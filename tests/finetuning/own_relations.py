"""The relations of docs/own_tasks.md, with a head that other formats have, too."""

import dataclasses

import keras

from bert_tf.finetuning.task import Metric, Traits
from bert_tf.modeling import HeadFormat
from bert_tf.options import registry
from tests.own_tasks_page import page


@dataclasses.dataclass(frozen=True, kw_only=True)
class RelationOptions(page.RelationOptions):
    pass


@keras.saving.register_keras_serializable(package="own")
class RelationClassifier(page.RelationClassifier):
    head_format = HeadFormat(
        "relations",
        {"relation/output_weights": "relation.weight", "relation/output_bias": "relation.bias"},
        architecture="BertForRelations",
        has_pooler=False,
    )

    def onnx_outputs(self, graph, hidden):
        positions = graph.node("Unsqueeze", ["positions", graph.ints([-1])])  # [B, 2, 1]
        entities = graph.node("GatherND", [hidden, positions], batch_dims=1)  # [B, 2, H]
        logits = graph.linear(graph.node("Flatten", [entities], axis=1), self.head, "relation")
        return {"logits": (logits, ["batch", self.num_labels])}


class Relations(page.Relations):
    traits = Traits((Metric("accuracy"),), (("logits", "classes"),), exports_texts=False)

    def build_model(self, **kwargs):
        return RelationClassifier(self.config, len(self.schema.labels), **kwargs)


registry.register("own_relations", RelationOptions, Relations, model=RelationClassifier)
