"""Errors for names of scikit-learn, Keras and Hugging Face say what to use instead."""

import copy
import importlib
import inspect
import pickle
import pkgutil
import re

import pytest

import bert_tf
from bert_tf import (
    BertClassifier,
    BertModel,
    FullTokenizer,
    Predictor,
    SentenceEncoder,
    TextClassifier,
)
from bert_tf.base.errors import UserError
from bert_tf.base.other_libraries import advice_of, use_instead
from bert_tf.tasks.classification.problem_types import ClassPrediction
from bert_tf.tasks.question_answering.decoding import AnswerPrediction
from bert_tf.tasks.token_classification.entities import LabeledWords
from tests.oracle import ROOT

CLASSIFIER, ENCODER = TextClassifier("folder"), SentenceEncoder("folder")
PREDICTOR = object.__new__(Predictor)
TOKENIZER = FullTokenizer(str(ROOT / "examples" / "small_bert" / "vocab.txt"))


@pytest.mark.parametrize(
    ("owner", "names", "expected"),
    [
        (CLASSIFIER, ["evaluate", "metrics"], "score(texts, labels)"),
        (CLASSIFIER, ["export", "to_onnx", "save_pretrained"], "save(folder); export_model.py"),
        (CLASSIFIER, ["classes_", "history_", "best_score_"], "After fit or load"),
        (CLASSIFIER, ["decision_function", "predict_log_proba"], "predict_proba(texts)"),
        (CLASSIFIER, ["partial_fit"], "load(folder).fit"),
        (CLASSIFIER, ["model", "layers", "summary", "compile"], "BertClassifier, "),
        (CLASSIFIER, ["encode", "embed", "transform"], "SentenceEncoder(folder)"),
        (CLASSIFIER, ["load_model", "from_folder"], "or load(folder)"),
        (CLASSIFIER, ["to", "cuda"], "CUDA_VISIBLE_DEVICES"),
        (ENCODER, ["encode_query", "encode_document"], "before each text"),
        (ENCODER, ["search", "cos_sim", "semantic_search"], "Use similarity(a, b)"),
        (ENCODER, ["save_pretrained"], "save(folder)"),
        (PREDICTOR, ["predict", "predict_proba", "batch_predict"], "Predictor(folder)(texts)"),
        (PREDICTOR, ["top_k"], "Predictor(folder, top_k=10)"),
        (PREDICTOR, ["score", "fit", "history"], "TextClassifier.load(folder)"),
        (PREDICTOR, ["encode", "embed"], "SentenceEncoder(folder)"),
        (TOKENIZER, ["encode", "batch_encode_plus", "pad"], "bert_tf.encode(texts, folder)"),
        (TOKENIZER, ["decode", "id_to_token"], "convert_ids_to_tokens"),
        (TOKENIZER, ["vocab_size", "mask_token_id", "get_vocab"], "vocab['[MASK]']"),
        (TOKENIZER, ["do_lower_case"], "basic_tokenizer"),
    ],
)
def test_attributes(owner, names, expected):
    for name in names:
        assert not hasattr(owner, name)
        with pytest.raises(AttributeError) as error:
            getattr(owner, name)
        message = f"{type(owner).__name__!r} object has no attribute {name!r}. "
        assert str(error.value).startswith(message)
        assert expected in str(error.value)


def test_attributes_without_advice():
    with pytest.raises(AttributeError, match=r"^'TextClassifier' object has no attribute 'zzz'$"):
        _ = CLASSIFIER.zzz


@pytest.mark.parametrize(
    ("method", "keyword", "expected"),
    [
        (CLASSIFIER.predict, "batch_size", "predict_batch_size"),
        (CLASSIFIER.predict, "zzz", "TextClassifier.predict has no argument 'zzz'. It takes texts"),
        (CLASSIFIER.predict_proba, "verbose", "logging.basicConfig"),
        (CLASSIFIER.score, "scoring", "Use fit(..., validation=(texts, labels)) for other metrics"),
        (ENCODER.encode, "normalize_embeddings", "normalize=True"),
        (ENCODER.encode, "prompt_name", "before each text"),
        (ENCODER.encode, "device", "CUDA_VISIBLE_DEVICES"),
        (ENCODER.encode, "max_length", "Use max_seq_length"),
        (PREDICTOR, "question", "Pass pairs as tuples: predictor((question, context))"),
        (PREDICTOR, "return_all_scores", "predictor(text).probabilities"),
        (CLASSIFIER.predict, "return_proba", "See predict_proba(texts)"),
        (
            FullTokenizer,
            "lowercase",
            "FullTokenizer.__init__ has no argument 'lowercase'. Pass do_",
        ),
        (FullTokenizer, "vocab", "It takes vocab_file, do_lower_case, "),
        (PREDICTOR.explain, "target", "It takes item, label, steps"),
    ],
)
def test_keywords(method, keyword, expected):
    with pytest.raises(UserError) as error:
        method(["a text"], **{keyword: 1})
    assert expected in str(error.value)


@pytest.mark.parametrize(
    ("call", "arguments", "expected"),
    [
        (PREDICTOR, 2, "Predictor.__call__: too many positional .* predictor((question, context))"),
        (PREDICTOR.columns, 2, "Predictor.columns: too many positional .* It takes inputs"),
        (
            CLASSIFIER.fit,
            4,
            "TextClassifier.fit: too many .* optionally validation=(texts, labels)",
        ),
        (CLASSIFIER.fit, 1, "TextClassifier.fit: missing a .* 'labels'. Pass texts and labels"),
        (ENCODER.fit, 1, "SentenceEncoder.fit: .* fit([anchor], [[positive, negative]])"),
        (TextClassifier, 2, "TextClassifier.__init__: too many .* Pass flags by name"),
        (TOKENIZER.tokenize, 2, "FullTokenizer.tokenize: too many .* It takes text"),
        (TOKENIZER.tokenize, 0, "FullTokenizer.tokenize: missing a required argument: 'text'"),
        (ENCODER.encode, 2, "SentenceEncoder.encode: too many .* It takes texts"),
        (CLASSIFIER.predict_proba, 2, "TextClassifier.predict_proba: too many .* It takes texts"),
    ],
)
def test_number_of_arguments(call, arguments, expected):
    with pytest.raises(UserError, match=".*".join(map(re.escape, expected.split(".*")))):
        call(*[["a text"]] * arguments)


def test_type_errors_inside_of_methods():
    with pytest.raises(TypeError, match=r"^Pass a list of tokens, not a text"):
        TOKENIZER.convert_tokens_to_ids("a text")


NAMES = "fp16 weight_decay test_size warm_start layers trainable lora_r monitor dtype num_labels "
NAMES += "num_classes compute_metrics top_k hidden_size"


@pytest.mark.parametrize("name", NAMES.split())
def test_flags(name):
    with pytest.raises(UserError) as error:
        TextClassifier("folder", **{name: 1})
    assert use_instead(name)
    assert str(error.value).endswith(f" for TextClassifier. {use_instead(name)}")


def test_the_number_of_labels():
    for name in ("num_labels", "num_classes"):
        with pytest.raises(UserError, match=r"Leave it out: it follows from .* pass labels=\["):
            TextClassifier("folder", **{name: 3})


@pytest.mark.parametrize("name", ["init_checkpoint", "teacher", "bert_config_file"])
def test_models_are_not_parameters(name, tiny):
    for model in (CLASSIFIER, BertModel(tiny.config)):
        message = f"^{name} cannot be a {type(model).__name__}: save it, and pass its folder"
        for call in (TextClassifier, SentenceEncoder, TextClassifier().set_params):
            with pytest.raises(UserError, match=message):
                call(**{name: model})


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("pipeline predict", "Predictor(folder)"),
        ("AutoModelForSequenceClassification TFBertForSequenceClassification", "TextClassifier("),
        ("BertForTokenClassification BertForMaskedLM", "BertTokenClassifier, "),
        ("AutoModel TFBertModel TFAutoModel BertBackbone", "from_checkpoint(folder)"),
        ("AutoTokenizer BertTokenizer BertTokenizerFast Tokenizer", "Use FullTokenizer("),
        ("Trainer TrainingArguments", "TextClassifier(folder).fit("),
        ("SentenceTransformer", "SentenceEncoder(folder)"),
        ("CrossEncoder", "run_ranking.py"),
        ("load load_model from_pretrained", "TextClassifier.load(folder)"),
    ],
)
def test_imports(names, expected):
    for name in names.split():
        with pytest.raises(ImportError) as error:
            exec(f"from bert_tf import {name}")
        assert str(error.value).startswith(f"There is no bert_tf.{name}. ")
        assert expected in str(error.value)
    with pytest.raises(AttributeError, match="module 'bert_tf' has no attribute 'zzz'"):
        _ = bert_tf.zzz
    assert not hasattr(bert_tf, "__wrapped__")


def test_star_imports_have_the_public_names():
    names = {}
    exec("from bert_tf import *", names)
    assert names["TextClassifier"] is TextClassifier
    assert {*names} - {"__builtins__"} == {*dir(bert_tf)} - {"__version__"}


def test_modules_can_be_imported():
    for module in pkgutil.iter_modules(bert_tf.__path__):
        assert not advice_of(["bert_tf"], module.name)
    importlib.import_module("bert_tf.tokenization")


def test_keras_models(tiny):
    model, inputs = BertModel(tiny.config), {"input_ids": [[1, 2]]}
    with pytest.raises(UserError, match=r"^Use from_checkpoint\(folder\)"):
        BertModel.from_pretrained("bert-base-uncased")
    with pytest.raises(UserError, match=r"^Use from_checkpoint\(folder\)"):
        BertClassifier.from_preset("bert_base_en", num_classes=2)
    for name, expected in {
        "output_attentions": "Pass return_attention_probs=True",
        "output_hidden_states": "Pass return_attention_probs=True; outputs have all_encoder_layers",
        "attention_mask": "Inputs and outputs are dicts",
    }.items():
        with pytest.raises(UserError, match=f"The model has no argument {name!r}. {expected}"):
            model(inputs, **{name: True})


@pytest.mark.parametrize("owner", [TextClassifier, SentenceEncoder, Predictor, FullTokenizer])
def test_from_pretrained(owner):
    with pytest.raises(UserError, match=r"^Use .*folder"):
        owner.from_pretrained("bert-base-uncased")
    with pytest.raises(UserError, match=r"^Use .*folder"):
        owner.from_preset("bert_base_en")


@pytest.mark.parametrize("name", ["load", "from_checkpoint"])
def test_a_predictor_opens_a_folder_in_its_constructor(name):
    with pytest.raises(UserError, match=r"^Use Predictor\(folder\)"):
        getattr(Predictor, name)("folder")


def test_signatures_and_copies():
    assert [*inspect.signature(TextClassifier.predict).parameters] == ["self", "texts"]
    assert copy.deepcopy(TOKENIZER).vocab == pickle.loads(pickle.dumps(TOKENIZER)).vocab


@pytest.mark.parametrize(
    "prediction",
    [
        ClassPrediction("good", {"good": 1.0}),
        AnswerPrediction("soup", [("soup", 1.0)], None),
        LabeledWords(["Rome"], ["B-LOC"]),
    ],
)
def test_fields_of_predictions(prediction):
    names = ", ".join(prediction._fields)
    with pytest.raises(TypeError, match=f"no keys, such as 'label'. It has the attributes {names}"):
        prediction["label"]
    with pytest.raises(AttributeError, match=f"no attribute 'logits'. .* attributes {names}"):
        _ = prediction.logits
    assert prediction[0] == next(iter(prediction))
    assert pickle.loads(pickle.dumps(prediction)) == copy.copy(prediction) == prediction
