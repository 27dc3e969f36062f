"""Names in the original BERT code that this package lacks, and what to use instead."""

from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from bert_tf.base.errors import UserError

_DATASET = "bert_tf.data.input_pipeline.read_dataset, or tf.data.Dataset.from_tensor_slices"
_REPLACEMENTS = {
    "run_classifier.create_model": "bert_tf.modeling.BertClassifier",
    "run_classifier.model_fn_builder": "bert_tf.modeling.BertClassifier with compile and fit",
    "run_classifier.input_fn_builder": _DATASET,
    "run_classifier.file_based_input_fn_builder": _DATASET,
    "run_squad.create_model": "bert_tf.modeling.BertSpanLabeler",
    "run_squad.model_fn_builder": "bert_tf.tasks.squad.run(SquadOptions(...))",
    "run_squad.input_fn_builder": _DATASET,
    "run_squad.FeatureWriter": "bert_tf.data.records.write_records",
    "extract_features.model_fn_builder": "bert_tf.api.predictor.Predictor(ExtractionOptions(...))",
    "extract_features.input_fn_builder": _DATASET,
    "modeling.BertModel(config, is_training, ...)": "BertModel(config), then model(inputs)",
    "modeling.get_assignment_map_from_checkpoint": "bert_tf.checkpoint.restore(model, prefix)",
    "modeling.get_shape_list": "tensor.shape",
    "BertModel.get_pooled_output": 'model(inputs)["pooled_output"]',
    "BertModel.get_sequence_output": 'model(inputs)["sequence_output"]',
    "BertModel.get_all_encoder_layers": 'model(inputs)["all_encoder_layers"]',
    "BertModel.get_embedding_output": 'model(inputs)["embedding_output"]',
    "BertModel.get_embedding_table": "model.embeddings.word_embeddings",
    "optimization.create_optimizer(loss, ...)": "create_optimizer(init_lr, num_train_steps, "
    "num_warmup_steps), a Keras optimizer for model.compile",
    "optimization.AdamWeightDecayOptimizer": "bert_tf.optimization.AdamWeightDecay",
}


def error_stubs(owner: str) -> dict[str, Callable[..., NoReturn]]:
    """Returns stubs, by name, for the removed names of a module or class; calls raise UserError."""
    names = [name for name in _REPLACEMENTS if name.startswith(f"{owner}.")]
    return {name.partition(".")[2]: partial(_fail, name) for name in names}


def _fail(name: str, *args: Any, **kwargs: Any) -> NoReturn:
    raise UserError(f"{name} only exists in the TensorFlow 1 code: use {_REPLACEMENTS[name]}")
