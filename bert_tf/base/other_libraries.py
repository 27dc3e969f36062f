"""Names of scikit-learn, Keras and Hugging Face that do not exist here, and what to use instead."""

import functools
import inspect
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from bert_tf.base.errors import UserError, shortened

_VALIDATION = "Use fit(..., validation=(texts, labels))"
_KERAS = "To train or change a Keras model, use BertClassifier, BertTokenClassifier, "
_KERAS += "BertSpanLabeler, BertPretrainer or BertModel, with from_checkpoint(folder)"
_CONVERT = "export_model.py and convert_checkpoint.py convert the folder of a model"
_INPUTS = "Use FullTokenizer('folder/vocab.txt', do_lower_case=...), and its tokenize(text). For "
_INPUTS += "the inputs of a model, call bert_tf.encode(texts, folder)"
_VECTORS = "For vectors, use SentenceEncoder(folder)"
_SIMILARITY = "Use similarity(a, b) of a SentenceEncoder, or search_texts.py"
_Tuple = TypeVar("_Tuple", bound=tuple)

# Class, "bert_tf", "script" that trained a model, or "" for flags and all classes -> pattern of
# names -> what to use instead. Only names that many programs have: to add one, remove one.
_ADVICE = {
    "Estimator": {
        "batch_size": "Set predict_batch_size of the estimator",
        "evaluate|scoring|metrics": f"Use score(texts, labels). {_VALIDATION} for other metrics",
        "predict_log_proba|decision_function|return_.*|top_k": "See predict_proba(texts)",
        "export.*|to_.*|push_to_hub|save_.*": f"Use save(folder); {_CONVERT}",
        "(from|load)_.*": "Use from_checkpoint(folder), or load(folder) for a trained model",
        "history_|(n_)?classes_|num_labels|id2label|best_.*": "After fit or load, there are "
        "history, evaluations and, for a classifier, classes_",
        "encode|embed.*|(fit_)?transform|vectors": _VECTORS,
        "fit": "Pass texts and labels, and optionally validation=(texts, labels)",
        "__init__": "Pass flags by name, such as max_seq_length=128",
    },
    "SentenceEncoder": {
        "normalize.*": "Pass normalize=True to SentenceEncoder",
        "prompt.*|encode_.*": "Use encode, and write the model's prefix, if any, before each text",
        "search|most_similar|.*mining|similarity_.*|semantic_search|cos_sim|rank": _SIMILARITY,
        "fit": "Pass anchors and positives; with negatives, fit([anchor], [[positive, negative]])",
    },
    "Predictor": {
        "__call__|question|context|passage|query|documents?": "Pass pairs as tuples: "
        "predictor((question, context))",
        "predict.*|.*_predict|call|forward|from_pretrained|load": "Use Predictor(folder)(texts)",
        "score|evaluate|(partial_)?fit|history": "Use TextClassifier.load(folder), which has it",
        "encode|embed.*|transform|vectors": _VECTORS,
        "save.*|export.*|to_.*": _CONVERT,
    },
    "FullTokenizer": {
        "(batch_)?encode.*|from_.*|pad|max_len.*": _INPUTS,
        "(batch_)?decode|ids?_to_tokens?": "Use convert_ids_to_tokens(ids)",
        ".*vocab_size|get_vocab|.*_token(_id)?|token_to_id": "Use vocab, such as vocab['[MASK]']",
        "(do_)?lower(_?case)?": "Pass do_lower_case to FullTokenizer, which basic_tokenizer has",
    },
    "ConfiguredModel": {
        "from_pretrained": "Use from_checkpoint(folder)",
        "output_.*": "Pass return_attention_probs=True; outputs have all_encoder_layers",
        "attention_mask|token_type_ids|return_dict": "Inputs and outputs are dicts: "
        "model({'input_ids': ..., 'input_mask': ..., 'segment_ids': ...})['pooled_output']",
    },
    "": {
        "validation_.*|eval_(data)?set|test_size|compute_metrics": _VALIDATION,
        "(max_)?length": "Use max_seq_length",
        "callbacks?|monitor|patience": "Use eval_every, best_metric and early_stopping_patience",
        "devices?|n(um)?_gpus?|to|cuda": "Use distribution_strategy, or set CUDA_VISIBLE_DEVICES",
        "fp16|bf16|(torch_)?dtype": "Use precision, such as precision='bfloat16'",
        "num_(labels|classes)|(label_|class_)names|id2label": "Leave it out: it follows from the "
        "data. For labels of a classifier that do not occur there, pass labels=[...]",
        "optimi[sz]er.*|weight_decay|loss|model_?|summary|layers|weights|compile"
        "|state_dict": _KERAS,
        "dropout|hidden_.*": "Change it in bert_config.json, and pass bert_config_file",
        "top_k|return_all_scores": "For labels, use predictor(text).probabilities; for answers, "
        "n_best; for masked words, Predictor(folder, top_k=10)",
        "problem_type|multi_?label": "For several labels per text, pass fit a list of labels for "
        "each text; for numbers, use TextRegressor",
        "padding|truncation|return_tensors": "Inputs are NumPy arrays, always padded and truncated "
        "to max_seq_length",
        "aggregation_strategy": "Use the entities of a prediction, predictor(text).entities",
        "text_pairs?|text_b": "Pass pairs of texts as tuples: [(a, b)]",
        "sample_weights?": "Use class_weights",
        "trainable|frozen|lora.*|peft.*": "To train a part of the weights, use freeze_layers",
        "verbose|report_to|logging_.*": "For the log, call logging.basicConfig(level='INFO')",
        "warm_start|partial_fit": "To continue, use save(folder), then load(folder).fit(...)",
    },
    "script": {
        "run_classifier": "Use TextClassifier.load(folder)",
        "run_ner": "Use TokenClassifier.load(folder)",
        "run_embeddings": "Use SentenceEncoder.load(folder)",
    },
    "bert_tf": {
        "pipeline|predict": "Use Predictor(folder)",
        ".*For[A-Z].*|(TF)?(Auto|Bert)Model|BertBackbone": f"{_KERAS}; or TextClassifier(folder)",
        "(Auto|.*Bert)?Tokenizer(Fast)?|BertPreprocessor": _INPUTS,
        ".*Trainer|TrainingArguments": "Use TextClassifier(folder).fit(texts, labels)",
        "SentenceTransformer.*|embed.*": "Use SentenceEncoder(folder)",
        "CrossEncoder": "Use run_ranking.py, then Predictor(folder)",
        "load(_.*)?|from_pretrained": "Use TextClassifier.load(folder), or Predictor(folder)",
    },
}


def use_instead(name: str, a_class: type = object) -> str:
    """Returns what to use instead of a flag, or of a name that a class lacks; "" if unknown."""
    return advice_of([*(x.__name__ for x in a_class.__mro__), ""], name)


def advice_of(owners: Iterable[str], name: str) -> str:
    """Returns what to use instead of a name, by the tables of the owners; "" if unknown."""
    tables = (_ADVICE.get(owner, {}) for owner in owners)
    found = (x for table in tables for pattern, x in table.items() if re.fullmatch(pattern, name))
    return next(found, "")


def explains_fields(cls: type[_Tuple]) -> type[_Tuple]:
    """Makes a named tuple raise errors that list its fields, for keys and unknown attributes."""
    has = f"It has the attributes {', '.join(getattr(cls, '_fields', ()))}"
    item_at = cls.__getitem__

    def __getitem__(self: Any, index: Any) -> Any:
        if isinstance(index, str):
            raise TypeError(f"{cls.__name__!r} object has no keys, such as {index!r}. {has}")
        return item_at(self, index)

    def __getattr__(self: Any, name: str) -> NoReturn:
        raise AttributeError(f"{cls.__name__!r} object has no attribute {name!r}. {has}")

    for method in (__getitem__, __getattr__):
        setattr(cls, method.__name__, method)
    return cls


class ExplainsNames:
    """Base class whose errors for unknown attributes and keywords say what to use instead."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, method in [*vars(cls).items()]:
            is_public = name in ("__init__", "__call__") or not name.startswith("_")
            if inspect.isfunction(method) and is_public:
                setattr(cls, name, _explains_arguments(method))

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


def _explains_arguments(method: Any) -> Any:
    """Makes a method raise a UserError for arguments that it cannot be called with."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except TypeError:
            _check_arguments(method, self, args, kwargs)
            raise

    return call


def _check_arguments(method: Any, owner: Any, args: Any, kwargs: Mapping[str, Any]) -> None:
    signature, name = inspect.signature(method), f"{type(owner).__name__}.{method.__name__}"
    names = [*signature.parameters][1:]
    takes = f"It takes {shortened(names)}"
    if not method.__code__.co_flags & inspect.CO_VARKEYWORDS:
        for other in kwargs.keys() - names:
            found = use_instead(other, type(owner)) or takes
            raise UserError(f"{name} has no argument {other!r}. {found}") from None
    try:
        signature.bind(owner, *args, **kwargs)
    except TypeError as error:
        # The tables have other names only of what a class lacks.
        has_advice = method.__name__ in ("__init__", "__call__", "fit")
        found = has_advice and use_instead(method.__name__, type(owner))
        raise UserError(f"{name}: {error}. {found or takes}") from None
