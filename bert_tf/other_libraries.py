"""Names of scikit-learn, Keras and Hugging Face that do not exist here, and what to use instead."""

import functools
import inspect
import re
from typing import TYPE_CHECKING, Any, NoReturn

from bert_tf.errors import UserError

_VALIDATION = "Use fit(..., validation=(texts, labels))"
_KERAS = "For the Keras model of a saved one, use BertClassifier.from_checkpoint(folder)"
_CONVERT = "export_model.py and convert_checkpoint.py convert the folder of a model"
# Class, or "" for flags and all classes -> pattern of names -> what to use instead.
_ADVICE = {
    "Estimator": {
        "batch_size": "Set predict_batch_size of the estimator",
        "evaluate|scoring|metrics": f"Use score(texts, labels). {_VALIDATION} for other metrics",
        "explain": "Use save(folder), then Predictor(folder).explain(text)",
        "export.*|to_.*|push_to_hub|save_.*": f"Use save(folder); {_CONVERT}",
        "from_pretrained": "Use from_checkpoint(folder), or load(folder) for a trained model",
        "history_?|evals_result_?": "After fit or load, there is history",
        "classes_": "A classifier has them after fit or load",
        "plot.*": "Plot the arrays in history, or see report.html in output_dir",
        "predict_log_proba|decision_function": "Classifiers have predict_proba(texts)",
        "predict_.*": "Use Predictor(folder)(texts), after save(folder)",
        "model_?|summary|layers|[gs]et_weights": _KERAS,
    },
    "SentenceEncoder": {
        "batch_size": "Pass eval_batch_size to SentenceEncoder",
        "normalize.*": "Pass normalize=True to SentenceEncoder",
        "show_progress_bar|convert_to.*": "It is not needed: encode returns a NumPy array",
        "prompt.*|encode_.*": "Use encode, and write the model's prefix, if any, before each text",
        "get_.*dimension": "Use encode(texts).shape[1]",
        "search|most_similar|.*mining": "Use similarity(a, b), or search_texts.py",
        "truncate_dim": "Cut the vectors: encode(texts)[:, :32]",
        "predict.*|score": "To predict labels, pass the vectors to another estimator",
    },
    "Predictor": {
        "batch_size": "Pass predict_batch_size to Predictor",
        "predict|from_pretrained": "Use Predictor(folder)(texts)",
        "predict_proba": "Use predictor(text).probabilities",
        "top_k": "Pass it to Predictor: Predictor(folder, top_k=10)",
        "classes_": "Use labels",
        "save.*|export.*|to_.*": _CONVERT,
        "model|summary": _KERAS,
    },
    "FullTokenizer": {
        "(batch_)?encode.*|from_.*": "Use FullTokenizer('folder/vocab.txt', do_lower_case=...). "
        "For the inputs of a model, call bert_tf.encode(texts, folder)",
        "(batch_)?decode": "Use convert_ids_to_tokens(ids)",
        "vocab_size|get_vocab|.*_token(_id)?": "Use vocab, such as vocab['[MASK]'] for an id",
    },
    "": {
        "validation_.*|eval_(data)?set": _VALIDATION,
        "test_size": f"Split with train_test_split of scikit-learn. {_VALIDATION}",
        "callbacks?": "Use eval_every and early_stopping_patience, or the Keras model "
        "BertClassifier",
        ".*threshold": "Compare probabilities, such as predict_proba(texts) > 0.3",
        ".*dropout.*": "Change hidden_dropout_prob in bert_config.json, and pass bert_config_file",
        "devices?|n(um)?_gpus?": "Use distribution_strategy, or set CUDA_VISIBLE_DEVICES",
        "fp16|bf16": "Use precision, such as precision='bfloat16'",
        "optimi[sz]er.*|weight_decay|loss|lr_.*|max_grad_norm": "It is fixed, as in the original: "
        "to choose another, train BertClassifier with Keras",
        "(label|target)_names|id2label|num_labels": "Pass fit [names[i] for i in labels]",
        "multi_?label": "Pass fit a list of labels for each text",
        "padding|truncation|return_tensors": "Inputs are NumPy arrays, always padded and "
        "truncated to max_seq_length",
        "group_by_length": "Use length_grouping",
        "model|checkpoint": "Use init_checkpoint",
        "n_jobs": "TensorFlow uses all cores",
        "verbose|report_to|logging_.*": "For the log, call logging.basicConfig(level='INFO')",
        "warm_start|partial_fit": "To continue, use save(folder), then load(folder).fit(...)",
    },
}


def use_instead(name: str, a_class: type = object) -> str:
    """Returns what to use instead of a flag, or of a name that a class lacks; "" if unknown."""
    tables = (_ADVICE.get(owner, {}) for owner in [*(x.__name__ for x in a_class.__mro__), ""])
    found = (x for table in tables for pattern, x in table.items() if re.fullmatch(pattern, name))
    return next(found, "")


class ExplainsNames:
    """Base class whose errors for unknown attributes and keywords say what to use instead."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, method in [*vars(cls).items()]:
            if inspect.isfunction(method) and (name == "__call__" or not name.startswith("_")):
                setattr(cls, name, _checks_keywords(method))

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises a UserError, which says what to use instead."""
        raise UserError(use_instead("from_pretrained", cls))

    # Hidden from type checkers, which would accept any attribute.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            found = f"{type(self).__name__!r} object has no attribute {name!r}"
            found += f". {text}" if (text := use_instead(name, type(self))) else ""
            raise AttributeError(found, name=name, obj=self)


def _checks_keywords(method: Any) -> Any:
    """Makes a method raise a UserError for a keyword that it does not have."""
    spec = inspect.getfullargspec(method)
    names = spec.args[1:] + spec.kwonlyargs

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        for name in kwargs.keys() - names:
            found = use_instead(name, type(self)) or f"It takes {', '.join(names)}"
            raise UserError(f"{method.__qualname__} has no argument {name!r}. {found}")
        return method(self, *args, **kwargs)

    return method if spec.varkw else call
