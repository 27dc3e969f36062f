"""Names of other libraries, and of the original code, that do not exist here: what to use instead.

The table has what people of transformers, scikit-learn, Keras and the original try first. For all
other names, `similar` compares spellings; `docs/coming_from/` has the long lists.
"""

import difflib
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NoReturn

from bert_tf.base.errors import UserError

_SCRIPTS = "run_classifier run_squad extract_features"
_OUTPUTS = "get_pooled_output get_sequence_output get_all_encoder_layers get_embedding_output"
_OF_TASKS = (
    "labels text_pairs run_entries targets texts_per_row metric_names lower_is_better soft_targets "
    "loss_uses_padding rows_are_independent predict_split serve write_predictions report texts"
)
# Owners, patterns of names, and what to use instead; the first row that matches counts, and at most
# 40 are allowed. An owner is a class, a module or a script; "any": all classes and all flags. For
# the owners "flag" and "input", the last column has the names here.
_ROWS = (
    # The original code of 2018.
    (
        _SCRIPTS,
        "input_fn_builder file_based_input_fn_builder",
        "bert_tf.data.input_pipeline.read_dataset",
    ),
    ("run_classifier run_squad", "create_model", "BertClassifier or BertSpanLabeler of bert_tf"),
    (_SCRIPTS, "model_fn_builder", "bert_tf.run(options)"),
    ("run_squad", "FeatureWriter", "bert_tf.data.records.write_records"),
    ("modeling", "get_assignment_map_from_checkpoint", "bert_tf.checkpoint.restore(model, prefix)"),
    ("modeling", "get_shape_list", "tensor.shape"),
    ("BertModel", "get_embedding_table", "model.embeddings.word_embeddings"),
    ("BertModel", _OUTPUTS, 'model(inputs)["pooled_output"], or another output of that dict'),
    ("optimization", "AdamWeightDecayOptimizer", "bert_tf.optimization.AdamWeightDecay"),
    # Version 1.0.
    ("Task", _OF_TASKS, "no effect any more, see CHANGELOG.md"),
    # Flags.
    ("flag", "data_dir", "train_file predict_file input_file"),
    ("flag", "dev_file eval_file validation_file", "eval_file predict_file"),
    ("flag", "eval_steps eval_strategy evaluation_strategy", "eval_every"),
    ("flag", "gradient_checkpointing", "recompute_layers"),
    ("flag", "max_steps", "num_train_epochs"),
    ("flag", "model model_name model_name_or_path", "init_checkpoint"),
    ("flag", "save_total_limit", "keep_checkpoint_max"),
    ("flag", "use_gpu num_gpus n_gpu gpus", "distribution_strategy"),
    ("flag", "warmup_ratio warmup_steps", "warmup_proportion"),
    # Inputs of a model.
    ("input", "input_word_ids token_ids", "input_ids"),
    ("input", "attention_mask padding_mask mask", "input_mask"),
    ("input", "input_type_ids token_type_ids", "segment_ids"),
    # Classes.
    (
        "bert_tf Estimator Predictor",
        "encode embed* *transform vectors SentenceTransformer*",
        "For vectors, use SentenceEncoder(folder)",
    ),
    (
        "Predictor bert_tf",
        "predict predict_* *_predict call forward pipeline load* from_*",
        "Use Predictor(folder)(texts); TextClassifier.load(folder) continues its training",
    ),
    (
        "FullTokenizer bert_tf",
        "encode* batch_encode* pad from_* *Tokenizer*",
        "Use FullTokenizer('folder/vocab.txt', do_lower_case=...), and its tokenize(text). For the "
        "inputs of a model, call bert_tf.encode(texts, folder)",
    ),
    ("FullTokenizer", "*decode id*_to_token*", "Use convert_ids_to_tokens(ids)"),
    ("FullTokenizer", "*vocab* *token*", "Use vocab, such as vocab['[MASK]']"),
    (
        "ConfiguredModel",
        "attention_mask token_type_ids return_dict output_*",
        "Inputs and outputs are dicts, such as model({'input_ids': ...})['pooled_output']. Pass "
        "return_attention_probs=True for attention",
    ),
    ("Estimator ConfiguredModel", "from_* load*", "Use from_checkpoint(folder) or load(folder)"),
    (
        "Estimator Predictor",
        "save* export* to_* push_to_hub",
        "Use save(folder) of an estimator; export_model.py and convert_checkpoint.py convert it",
    ),
    (
        "bert_tf any",
        "*For[A-Z]* *Model *Trainer TrainingArguments CrossEncoder *Backbone model model_ summary "
        "layers weights compile optimi[sz]er* weight_decay",
        "Use TextClassifier(folder).fit(texts, labels). To change a Keras model, use "
        "BertClassifier, BertTokenClassifier, BertSpanLabeler or BertModel, with "
        "from_checkpoint(folder)",
    ),
    (
        "any",
        "evaluat* scoring metrics validation_* eval_*set test_size compute_metrics",
        "Use score(texts, labels), or fit(..., validation=(texts, labels))",
    ),
    ("any", "num_labels num_classes *_names id2label", "Leave it out, or pass labels=[...]"),
    (
        "any",
        "classes_ history_ best_* return_all_scores decision_function predict_log_proba",
        "See history and classes_ after fit or load, and predict_proba(texts)",
    ),
    ("any", "question context passage query text_pair* text_b", "Pass pairs of texts: [(a, b)]"),
    ("any", "max_length padding truncation return_tensors", "Use max_seq_length"),
    ("any", "callback* monitor patience", "Use eval_every and early_stopping_patience"),
    (
        "any",
        "device* n_gpus to cuda fp16 bf16 *dtype",
        "Use distribution_strategy and precision, or set CUDA_VISIBLE_DEVICES",
    ),
    ("any", "trainable lora* peft*", "To train a part of the weights, use freeze_layers"),
    ("any", "warm_start partial_fit", "To continue, use save(folder), then load(folder).fit(...)"),
)


def use_instead(name: str, a_class: type = object) -> str:
    """Returns what to use instead of a flag, or of a name that a class lacks; "" if unknown."""
    return advice_of([*(x.__name__ for x in a_class.__mro__), "any"], name)


def advice_of(owners: Iterable[str], name: str) -> str:
    """Returns the last column of the first row for one of the owners; "" if there is none."""
    wanted = {*owners}
    for row_owners, patterns, advice in _ROWS:
        is_owner = wanted.intersection(row_owners.split())
        if is_owner and any(fnmatchcase(name, pattern) for pattern in patterns.split()):
            return advice
    return ""


def advice_for_flag(name: str, names: Iterable[str]) -> str:
    """Returns what to use instead of a flag that is none of `names`; "" if unknown."""
    close = " or ".join(similar(name, names))
    return use_instead(name) or (f"Did you mean {close}?" if close else "")


def similar(name: str, names: Iterable[str], limit: int = 3) -> list[str]:
    """Returns the names of flags that a misspelled or foreign name may mean, best first."""
    names, words = [*names], {*name.replace("-", "_").split("_")}
    if known := [x for x in advice_of(["flag"], name).split() if x in names]:
        return known
    # lr: learning_rate; epochs: num_train_epochs; max_length: max_seq_length.
    initials = [x for x in names if "".join(word[:1] for word in x.split("_")) == name]
    parts = [x for x in names if words <= {*x.split("_")}] or [x for x in names if name in x]
    # per_device_train_batch_size: train_batch_size.
    wholes = [x for x in names if "_" in x and {*x.split("_")} <= words]
    found = initials or sorted(parts, key=lambda x: x.count("_"))
    found = found or sorted(wholes, key=len, reverse=True)
    return (found or difflib.get_close_matches(name, names, limit, cutoff=0.75))[:limit]


def error_stubs(owner: str) -> dict[str, Callable[..., NoReturn]]:
    """Returns stubs, by name, for the names that the original has in a module or class.

    Calls raise a UserError, which says what to use instead.
    """

    def stub(name: str, advice: str) -> Callable[..., NoReturn]:
        def fail(*args: Any, **kwargs: Any) -> NoReturn:
            raise UserError(f"{owner}.{name} only exists in the TensorFlow 1 code: use {advice}")

        return fail

    rows = [(names, advice) for owners, names, advice in _ROWS if owner in owners.split()]
    return {name: stub(name, advice) for names, advice in rows for name in names.split()}


class ExplainsNames:
    """Base class whose errors for unknown attributes say what to use instead."""

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises a UserError, which says what to use instead."""
        raise UserError(use_instead("from_pretrained", cls))

    from_preset = load = from_checkpoint = from_pretrained

    # Hidden from type checkers, which would accept any attribute.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            found = f"{type(self).__name__!r} object has no attribute {name!r}"
            found += f". {text}" if (text := use_instead(name, type(self))) else ""
            raise AttributeError(found, name=name, obj=self)
