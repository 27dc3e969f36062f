"""Names of scikit-learn, Keras and Hugging Face that do not exist here, and what to use instead."""

import functools
import inspect
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from bert_tf.errors import UserError, shortened

_VALIDATION = "Use fit(..., validation=(texts, labels))"
_KERAS = "For the Keras model of a saved one, use BertClassifier.from_checkpoint(folder)"
_CONVERT = "export_model.py and convert_checkpoint.py convert the folder of a model"
_TOKENIZER = "Use FullTokenizer('folder/vocab.txt', do_lower_case=...)"
_INPUTS = f"{_TOKENIZER}, and its tokenize(text). For the inputs of a model, call "
_INPUTS += "bert_tf.encode(texts, folder)"
_SIMILARITY = "Use similarity(a, b) of a SentenceEncoder, or search_texts.py"
_LAYERS = "For vectors of other layers, use Predictor(folder, script='extract_features', "
_LAYERS += "layers=[-2, -1], pooling='mean')"
_Tuple = TypeVar("_Tuple", bound=tuple)

# Class, "bert_tf", "script" that trained a model, or "" for flags and all classes -> pattern of
# names -> what to use instead.
_ADVICE = {
    "Estimator": {
        "batch_size": "Set predict_batch_size of the estimator",
        "evaluate|scoring|metrics": f"Use score(texts, labels). {_VALIDATION} for other metrics",
        "confusion_matrix|classification_report|cross_.*|calibrat.*": "Use that of scikit-learn, "
        "with this estimator or predict(texts)",
        "explain.*|coef_|feature_importances_|attentions?": "TextClassifier has explain(text)",
        "export.*|to_.*|push_to_hub|save_.*": f"Use save(folder); {_CONVERT}",
        "from_pretrained": "Use from_checkpoint(folder), or load(folder) for a trained model",
        "load_.*|from_.*": "Use load(folder)",
        "history_?|evaluations|evals_result_?|(loss|validation)_.*_|best_.*_|n_iter_": "After fit "
        "or load, there are history and evaluations",
        "classes_|labels_|n_classes_|id2label|label2id|num_labels": "A classifier has classes_ "
        "after fit or load",
        "plot.*": "Plot the arrays in history and evaluations, or see report.html in output_dir",
        "predict_log_proba|decision_function|return_proba|top_k": "Classifiers have "
        "predict_proba(texts)",
        "predict_.*|entities|aggregation_.*|tag": "Use save(folder), then Predictor(folder)(texts)",
        "encode|embed.*|(fit_)?transform|vectors": "For vectors, use SentenceEncoder(folder)",
        "train(er)?|fit_.*|compile|.*_on_batch|stop_training": "Use fit(texts, labels), or train "
        "BertClassifier with Keras",
        "config|get_config": "After save(folder), see bert_config.json in the folder",
        "(get_)?max_(seq_)?length": "Use max_seq_length",
        "model_?|summary|(get_)?layers?|count_params|((trainable|[gs]et)_)?(weights|variables)": (
            _KERAS
        ),
        "forward|call|state_dict|(named_)?parameters": _KERAS,
        "fit": "Pass texts and labels, and optionally validation=(texts, labels)",
        "__init__": "Pass flags by name, such as max_seq_length=128",
    },
    "SentenceEncoder": {
        "batch_size": "Pass eval_batch_size to SentenceEncoder",
        "normalize.*": "Pass normalize=True to SentenceEncoder",
        "show_progress_bar|convert_to.*": "It is not needed: encode returns a NumPy array",
        "prompt.*|encode_.*": "Use encode, and write the model's prefix, if any, before each text",
        "embed.*|vectors": "Use encode(texts)",
        "dim(ension)?|get_.*dimension": "Use encode(texts).shape[1]",
        "search|most_similar|.*mining|similarity_.*|semantic_search|cos_sim|rank": _SIMILARITY,
        "truncate_dim": "Cut the vectors: encode(texts)[:, :32]",
        "fit_predict|cluster|community_detection": "Use a clustering of scikit-learn, such as "
        "KMeans().fit_predict(encode(texts))",
        "layers|output_(layers?|value)|token_embeddings": _LAYERS,
        "evaluat.*|scoring|metrics": "Use fit(..., validation=(anchors, positives)), or "
        "run_embeddings.py",
        "predict.*|score": "To predict labels, pass the vectors to another estimator",
        "fit": "Pass anchors and positives; with negatives, fit([anchor], [[positive, negative]])",
    },
    "Predictor": {
        "__call__|question|context|passage|query|documents?": "Pass pairs as tuples: "
        "predictor((question, context))",
        "batch_size": "Pass predict_batch_size to Predictor",
        "predict_proba|proba": "Use predictor(text).probabilities",
        "predict.*|.*_predict|call|forward|from_pretrained|load": "Use Predictor(folder)(texts)",
        "max_(seq_)?length": "Pass it to Predictor: Predictor(folder, max_seq_length=64)",
        "as_.*|to_(frame|pandas|df)": "Use columns(texts), such as for pandas.DataFrame",
        "score|evaluate|(partial_)?fit|history": "Use TextClassifier.load(folder), which has it",
        "encode|embed.*|transform|vectors": "For vectors, use SentenceEncoder(folder)",
        "explain.+|attentions?": "Use explain(text)",
        "classes_|id2label|label2id|num_labels": "Use labels",
        "config|get_config": "See bert_config.json in the folder",
        "save.*|export.*|to_.*": _CONVERT,
        "model|summary": _KERAS,
    },
    "FullTokenizer": {
        "all_special_.*|special_tokens_map": "Use basic_tokenizer.special_tokens",
        "add_tokens|.*_special_tokens": "Pass new ones to FullTokenizer, as in "
        "special_tokens=['[E1]', '[/E1]']; tokenize does not add [CLS] and [SEP]",
        "(batch_)?encode.*|from_.*": _INPUTS,
        "pad|truncate|enable_.*|.*_for_model|model_max_length|texts_to_.*|max_len.*": _INPUTS,
        "convert_tokens_to_string|detokenize": "Use ' '.join(tokens).replace(' ##', '')",
        "(batch_)?decode|ids?_to_tokens?": "Use convert_ids_to_tokens(ids)",
        "(get_)?vocab_size|get_vocab|.*_token(_id)?|token_to_id|word_index": (
            "Use vocab, such as vocab['[MASK]'] for an id"
        ),
        "save.*": "Copy vocab.txt",
        "train.*|fit_.*": "Use create_vocab.py",
        "(do_)?lower(_?case)?": "Pass do_lower_case to FullTokenizer, which basic_tokenizer has",
        "batch_tokenize|tokenize_.*": "Use [tokenizer.tokenize(text) for text in texts]",
    },
    "ConfiguredModel": {
        "from_pretrained": "Use from_checkpoint(folder)",
        "output_attentions": "Pass return_attention_probs=True",
        "output_hidden_states": "Use all_encoder_layers of the outputs",
        "attention_mask|token_type_ids|return_dict": "Inputs and outputs are dicts: "
        "model({'input_ids': ..., 'input_mask': ..., 'segment_ids': ...})['pooled_output']",
    },
    "": {
        "validation_.*|eval_(data)?set": _VALIDATION,
        "test_size|dev_size|stratify": "Split with train_test_split of scikit-learn. "
        f"{_VALIDATION}",
        "callbacks?": "Use eval_every and early_stopping_patience, or the Keras model "
        "BertClassifier",
        ".*threshold": "Compare probabilities, such as predict_proba(texts) > 0.3",
        ".*dropout.*": "Change hidden_dropout_prob in bert_config.json, and pass bert_config_file",
        "hidden_.*|intermediate_size|num_(hidden|attention)_.*": "Change it in bert_config.json, "
        "and pass bert_config_file. For fewer layers, see init_layers",
        "devices?|n(um)?_gpus?|to|cuda": "Use distribution_strategy, or set CUDA_VISIBLE_DEVICES",
        "fp16|bf16|half|(use_)?amp|(torch_)?dtype": "Use precision, such as precision='bfloat16'",
        "optimi[sz]er.*|weight_decay|loss|lr_.*|max_grad_norm|focal_loss|label_smoothing.*"
        "|l[12]|regulari.*": "It is fixed, as in the original: to choose another, train "
        "BertClassifier with Keras",
        "(label|target)_names|id2label": "Pass fit [names[i] for i in labels]",
        "num_(labels|classes)|n_classes": "Leave it out: it follows from the data. For labels of a "
        "classifier that do not occur there, pass labels=[...]",
        "problem_type": "For several labels per text, pass fit a list of labels for each text; for "
        "numbers, use TextRegressor",
        "compute_metrics": "Metrics are built in, and best_metric chooses one. For others, apply "
        "sklearn.metrics to predictions",
        "top_k|return_all_scores": "For labels, use predictor(text).probabilities; for answers, "
        "n_best; for masked words, Predictor(folder, top_k=10)",
        "aggregation_strategy": "Use the entities of a prediction, predictor(text).entities",
        "targets|[Xy](_.*)?": "Texts and labels are the first two arguments",
        "text_pairs?|text_b": "Pass pairs of texts as tuples: [(a, b)]",
        "multi_?label": "Pass fit a list of labels for each text",
        "padding|truncation|return_tensors|return_(attention_mask|token_type_ids)": "Inputs are "
        "NumPy arrays, always padded and truncated to max_seq_length",
        "group_by_length": "Use length_grouping",
        "model|checkpoint": "Use init_checkpoint",
        "layers|output_layers?": f"{_LAYERS}. For a smaller model, see init_layers",
        "output_attentions|output_hidden_states": "Call a Keras model: "
        "BertModel.from_checkpoint(folder)(inputs, return_attention_probs=True), which also "
        "returns all_encoder_layers",
        "tokenizer|tokenize": "It is part of the model's folder. " + _TOKENIZER,
        "trainable|frozen|unfreeze|lora.*|peft.*|adapters?": "To train a part of the weights, use "
        "freeze_layers",
        "monitor|load_best_model.*|(save|restore)_best.*": "Use best_metric, with eval_every",
        "(over|under)sampl.*|sampler|sample_weights?": "Use class_weights",
        "max_iter|steps_per_epoch|num_(train|training)_steps": "Use num_train_epochs",
        "shuffle": "It is not needed: each epoch has another order, which random_seed determines",
        "cv|refit|n_splits": "Use cross_val_score or GridSearchCV of scikit-learn",
        "trust_remote_code|local_.*|revision|token|cache_.*|from_(pt|tf)|hub_.*": "Download the "
        "model, and pass its folder",
        "tensorboard.*|log_dir": "Use output_dir, which has files for TensorBoard",
        "ngram_range|stop_words|max_features|vectorizer": "Pass texts as they are",
        "quanti[sz].*": _CONVERT,
        "n_jobs|(num_)?workers|use_multiprocessing|.*multi_process.*": "TensorFlow uses all cores",
        "verbose|report_to|logging_.*": "For the log, call logging.basicConfig(level='INFO')",
        "warm_start|partial_fit|initial_epoch": "To continue, use save(folder), then "
        "load(folder).fit(...)",
    },
    "script": {
        "run_classifier": "Use TextClassifier.load(folder)",
        "run_ner": "Use TokenClassifier.load(folder)",
        "run_embeddings": "Use SentenceEncoder.load(folder)",
    },
    "bert_tf": {
        "pipeline|predict": "Use Predictor(folder)",
        ".*ForSequenceClassification|BertTextClassifier": "Use TextClassifier(folder), or the "
        "Keras model BertClassifier.from_checkpoint(folder)",
        ".*ForTokenClassification": "Use TokenClassifier(folder), or the Keras model "
        "BertTokenClassifier.from_checkpoint(folder)",
        ".*ForQuestionAnswering": "Use run_squad.py, or the Keras model "
        "BertSpanLabeler.from_checkpoint(folder)",
        ".*ForMultipleChoice": "Use run_multiple_choice.py, or the Keras model "
        "BertMultipleChoice.from_checkpoint(folder)",
        ".*For(MaskedLM|PreTraining|NextSentencePrediction)|BertMaskedLM": "Use the Keras model "
        "BertPretrainer.from_checkpoint(folder), or Predictor(folder, script='predict_masked')",
        "(TF)?(Auto|Bert)Model|Model|Bert|BertBackbone|BertEncoder": "Use "
        "BertModel.from_checkpoint(folder)",
        "(Auto|.*Bert|WordPiece)?Tokenizer(Fast)?|tokenizer|BertPreprocessor": _INPUTS,
        "AutoConfig": "Use BertConfig.from_json_file(path)",
        ".*Trainer|TrainingArguments|fit|train|DataCollator.*|InputExample": "Use "
        "TextClassifier(folder).fit(texts, labels)",
        "SentenceTransformer.*|embed.*": "Use SentenceEncoder(folder)",
        "CrossEncoder": "Use run_ranking.py, then Predictor(folder)",
        "losses": "Pass loss to a SentenceEncoder, such as loss='cosent'",
        "util|cos_sim|semantic_search|paraphrase_mining": _SIMILARITY,
        "load(_.*)?|from_pretrained": "Use TextClassifier.load(folder), or Predictor(folder)",
        "export|convert|save(_.*)?": _CONVERT,
        "evaluate": "Use score(texts, labels) of an estimator",
        "set_seed": "Pass random_seed to an estimator",
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
