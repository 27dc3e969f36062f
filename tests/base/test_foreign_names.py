"""Errors for names of scikit-learn, Keras and Hugging Face say what to use instead."""

import copy
import importlib
import inspect
import pickle
import pkgutil

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
from bert_tf.base import foreign_names
from bert_tf.base.errors import UserError
from bert_tf.base.foreign_names import advice_of
from tests.oracle import ROOT

CLASSIFIER = TextClassifier("folder")
PREDICTOR = object.__new__(Predictor)
TOKENIZER = FullTokenizer(str(ROOT / "examples" / "small_bert" / "vocab.txt"))


def _message(call):
    with pytest.raises((AttributeError, ImportError, UserError)) as error:
        call()
    return str(error.value)


def _import(name):
    exec(f"from bert_tf import {name}")


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: CLASSIFIER.evaluate, "has no attribute 'evaluate'. Use score(texts, labels)"),
        (lambda: CLASSIFIER.save_pretrained, "Use save(folder) of an estimator"),
        (lambda: CLASSIFIER.classes_, "after fit or load"),
        (lambda: CLASSIFIER.partial_fit, "load(folder).fit"),
        (lambda: CLASSIFIER.summary, "BertClassifier, "),
        (lambda: CLASSIFIER.transform, "SentenceEncoder(folder)"),
        (lambda: CLASSIFIER.cuda, "CUDA_VISIBLE_DEVICES"),
        (lambda: PREDICTOR.predict_proba, "Predictor(folder)(texts)"),
        (lambda: PREDICTOR.embed, "SentenceEncoder(folder)"),
        (lambda: TOKENIZER.batch_encode_plus, "bert_tf.encode(texts, folder)"),
        (lambda: TOKENIZER.decode, "convert_ids_to_tokens"),
        (lambda: TOKENIZER.mask_token_id, "vocab['[MASK]']"),
        (lambda: CLASSIFIER.zzz, "'TextClassifier' object has no attribute 'zzz'"),
        (lambda: TextClassifier("folder", fp16=True), "Use distribution_strategy and precision"),
        (lambda: TextClassifier("folder", num_labels=2), "Leave it out: labels follow"),
        (lambda: TextClassifier("folder", lora_r=2), "freeze_layers"),
        (lambda: _import("pipeline"), "There is no bert_tf.pipeline. Use Predictor(folder)"),
        (lambda: _import("AutoModelForSequenceClassification"), "TextClassifier("),
        (lambda: _import("BertTokenizerFast"), "Use FullTokenizer("),
        (lambda: _import("TFBertModel"), "from_checkpoint(folder)"),
        (lambda: _import("Trainer"), "TextClassifier(folder).fit("),
        (lambda: _import("SentenceTransformer"), "SentenceEncoder(folder)"),
        (lambda: _import("from_pretrained"), "TextClassifier.load(folder)"),
        (lambda: bert_tf.zzz, "module 'bert_tf' has no attribute 'zzz'"),
        (lambda: Predictor.load("folder"), "Use Predictor(folder)"),
        (lambda: BertModel.from_pretrained("bert-base-uncased"), "Use from_checkpoint(folder)"),
        (lambda: BertClassifier.from_preset("bert"), "Use from_checkpoint(folder)"),
        (lambda: TextClassifier.from_pretrained("bert"), "Use from_checkpoint(folder)"),
        (lambda: FullTokenizer.from_pretrained("bert"), "Use FullTokenizer("),
    ],
)
def test_advice(call, expected):
    assert expected in _message(call)


def test_the_table_is_short():
    assert len(foreign_names._ROWS) <= 40


def test_type_errors_inside_of_methods():
    with pytest.raises(TypeError, match=r"^Pass a list of tokens, not a text"):
        TOKENIZER.convert_tokens_to_ids("a text")


@pytest.mark.parametrize("name", ["init_checkpoint", "teacher", "bert_config_file"])
def test_models_are_not_parameters(name, tiny):
    for model in (CLASSIFIER, BertModel(tiny.config)):
        message = f"^{name} cannot be a {type(model).__name__}: save it, and pass its folder"
        for call in (TextClassifier, SentenceEncoder, TextClassifier().set_params):
            with pytest.raises(UserError, match=message):
                call(**{name: model})


def test_star_imports_have_the_public_names():
    names = {}
    exec("from bert_tf import *", names)
    assert names["TextClassifier"] is TextClassifier
    assert {*names} - {"__builtins__"} == {*dir(bert_tf)} - {"__version__"}


def test_modules_can_be_imported():
    for module in pkgutil.iter_modules(bert_tf.__path__):
        assert not advice_of(["bert_tf"], module.name)
    importlib.import_module("bert_tf.tokenization")


@pytest.mark.parametrize("name", ["output_attentions", "attention_mask"])
def test_arguments_of_keras_models(tiny, name):
    model = BertModel(tiny.config)
    with pytest.raises(UserError, match="Inputs and outputs are dicts"):
        model({"input_ids": [[1, 2]]}, **{name: True})


def test_signatures_and_copies():
    assert [*inspect.signature(TextClassifier.predict).parameters] == ["self", "texts"]
    assert copy.deepcopy(TOKENIZER).vocab == pickle.loads(pickle.dumps(TOKENIZER)).vocab
