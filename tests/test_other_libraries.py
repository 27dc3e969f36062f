"""Errors for names of scikit-learn, Keras and Hugging Face say what to use instead."""

import copy
import inspect
import pickle

import pytest

from bert_tf import FullTokenizer, Predictor, SentenceEncoder, TextClassifier
from bert_tf.errors import UserError
from bert_tf.other_libraries import use_instead
from tests.oracle import ROOT

CLASSIFIER, ENCODER = TextClassifier("folder"), SentenceEncoder("folder")
PREDICTOR = object.__new__(Predictor)
TOKENIZER = FullTokenizer(str(ROOT / "examples" / "small_bert" / "vocab.txt"))


@pytest.mark.parametrize(
    ("owner", "names", "expected"),
    [
        (CLASSIFIER, ["evaluate", "metrics"], "score(texts, labels)"),
        (CLASSIFIER, ["explain"], "Predictor(folder).explain(text)"),
        (CLASSIFIER, ["export", "to_onnx", "save_pretrained"], "save(folder); export_model.py"),
        (CLASSIFIER, ["history", "history_"], "After fit or load, there is history"),
        (CLASSIFIER, ["classes_"], "after fit or load"),
        (CLASSIFIER, ["decision_function", "predict_log_proba"], "predict_proba(texts)"),
        (CLASSIFIER, ["partial_fit"], "load(folder).fit"),
        (CLASSIFIER, ["plot", "plot_history"], "report.html"),
        (CLASSIFIER, ["model", "model_", "summary"], "BertClassifier.from_checkpoint(folder)"),
        (ENCODER, ["encode_query", "encode_document"], "before each text"),
        (ENCODER, ["get_sentence_embedding_dimension"], "encode(texts).shape[1]"),
        (ENCODER, ["save_pretrained"], "save(folder)"),
        (ENCODER, ["predict", "score"], "another estimator"),
        (PREDICTOR, ["predict"], "Predictor(folder)(texts)"),
        (ENCODER, ["search", "paraphrase_mining"], "search_texts.py"),
        (PREDICTOR, ["predict_proba"], "predictor(text).probabilities"),
        (PREDICTOR, ["top_k"], "Predictor(folder, top_k=10)"),
        (TOKENIZER, ["encode", "batch_encode_plus"], "bert_tf.encode(texts, folder)"),
        (TOKENIZER, ["decode"], "convert_ids_to_tokens"),
        (TOKENIZER, ["vocab_size", "mask_token_id"], "vocab['[MASK]']"),
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
        (ENCODER.encode, "batch_size", "Pass eval_batch_size to SentenceEncoder"),
        (ENCODER.encode, "normalize_embeddings", "normalize=True"),
        (ENCODER.encode, "show_progress_bar", "It is not needed"),
        (ENCODER.encode, "prompt_name", "before each text"),
        (ENCODER.encode, "device", "CUDA_VISIBLE_DEVICES"),
        (PREDICTOR, "batch_size", "Predictor.__call__ has no argument 'batch_size'. Pass predict_"),
        (PREDICTOR.explain, "target", "It takes item, label, steps"),
    ],
)
def test_keywords(method, keyword, expected):
    with pytest.raises(UserError) as error:
        method(["a text"], **{keyword: 1})
    assert expected in str(error.value)


@pytest.mark.parametrize("name", ["fp16", "weight_decay", "test_size", "n_jobs", "warm_start"])
def test_flags(name):
    with pytest.raises(UserError) as error:
        TextClassifier("folder", **{name: 1})
    assert str(error.value).endswith(f" for TextClassifier. {use_instead(name)}")


@pytest.mark.parametrize("owner", [TextClassifier, SentenceEncoder, Predictor, FullTokenizer])
def test_from_pretrained(owner):
    with pytest.raises(UserError, match=r"^Use .*folder"):
        owner.from_pretrained("bert-base-uncased")


def test_signatures_and_copies():
    assert [*inspect.signature(TextClassifier.predict).parameters] == ["self", "texts"]
    assert copy.deepcopy(TOKENIZER).vocab == pickle.loads(pickle.dumps(TOKENIZER)).vocab
