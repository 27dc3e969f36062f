"""Typical programs written for the original release, with `bert` renamed to `bert_tf`."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import run_classifier as script
from bert_tf import (
    checkpoint,
    extract_features,
    modeling,
    optimization,
    run_classifier,
    run_squad,
    tokenization,
)
from bert_tf.base.errors import UserError
from bert_tf.tasks.classification.task_module import load_task_module
from tests.processes import run_python


@pytest.fixture
def tokenizer(tiny):
    return tokenization.FullTokenizer(tiny.flags["vocab_file"], do_lower_case=True)


@pytest.mark.parametrize(
    ("label_list", "labels"),
    [([0, 1], [1, 0]), (np.unique(["neg", "pos"]), ["pos", "neg"]), ([1, 2, 3, 4, 5], [2, 1])],
)
def test_movie_review_notebook(tokenizer, label_list, labels):
    """As in the movie review notebook and its variants, with labels from a data frame."""
    examples = [
        run_classifier.InputExample(guid=None, text_a=text, text_b=None, label=label)
        for text, label in zip(["the good film", "not good"], labels, strict=True)
    ]
    features = run_classifier.convert_examples_to_features(examples, label_list, 6, tokenizer)
    assert [feature.label_id for feature in features] == [1, 0]
    assert [feature.input_mask for feature in features] == [[1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 0, 0]]
    with pytest.raises(UserError, match="only exists in the TensorFlow 1 code"):
        run_classifier.input_fn_builder(features, 6, is_training=True, drop_remainder=False)


def test_unknown_integer_label_is_rejected(tokenizer):
    example = run_classifier.InputExample(None, "good", None, 7)
    with pytest.raises(UserError, match="Label 7 of example None is not one of 0, 1"):
        run_classifier.convert_examples_to_features([example], np.array([0, 1]), 6, tokenizer)


def test_script_imports_do_not_load_tensorflow():
    code = """
import sys
from run_classifier import *
from run_classifier import DataProcessor, convert_single_example
from run_squad import FeatureWriter, RawResult, input_fn_builder, tokenization
from extract_features import read_examples
import bert_tf
print(MrpcProcessor().get_labels(), hasattr(bert_tf, "nothing"), "tensorflow" in sys.modules)
"""
    result = run_python("-c", code)
    assert result.stdout.strip() == "['0', '1'] False False", result.stderr


def test_processors_read_documented_columns(tiny):
    examples = script.MrpcProcessor().get_train_examples(str(tiny.folder / "mrpc"))
    assert (examples[1].guid, examples[1].label, len(examples)) == ("train-2", "1", 18)
    examples = script.ColaProcessor().get_test_examples(str(tiny.folder / "cola"))
    assert (examples[0].guid, examples[0].label, len(examples)) == ("test-1", "0", 7)
    with pytest.raises(NotImplementedError, match="xnli has no test set"):
        script.XnliProcessor().get_test_examples("anywhere")


def test_xnli_in_other_languages(tmp_path):
    header = ["language", "gold_label", *"abcd", "sentence1", "sentence2"]
    rows = [[language, "neutral", *"abcd", f"{language} 1", "2"] for language in ("zh", "de")]
    with open(tmp_path / "xnli.dev.tsv", "w", encoding="utf-8") as file:
        csv.writer(file, delimiter="\t").writerows([header, *rows])
    processor = script.XnliProcessor()
    assert [example.text_a for example in processor.get_dev_examples(str(tmp_path))] == ["zh 1"]
    processor.language = "de"
    (example,) = processor.get_dev_examples(str(tmp_path))
    assert (example.guid, example.text_a, example.label) == ("dev-2", "de 1", "neutral")


def test_subclass_overriding_create_examples(tmp_path):
    """Overriding `_create_examples` is enough, as in the original."""

    class Weather(script.MrpcProcessor):
        def get_labels(self):
            return ["rain", "sun"]

        def _create_examples(self, lines, set_type):
            return [script.InputExample(set_type, text, label=label) for label, text in lines]

    (tmp_path / "dev.tsv").write_text("sun\ta b\nrain\tc\n")
    (example, _) = Weather().get_dev_examples(str(tmp_path))
    assert (example.guid, example.text_a, example.label) == ("dev", "a b", "sun")


def test_data_processor_as_task_module(tmp_path):
    path = tmp_path / "task.py"
    path.write_text("""
import os
from run_classifier import DataProcessor, InputExample

class Reviews(DataProcessor):
    def get_train_examples(self, data_dir):
        return self._create_examples(self._read_tsv(os.path.join(data_dir, "train.tsv")), "train")

    def get_labels(self):
        return ["negative", "positive"]

    def _create_examples(self, lines, set_type):
        examples = []
        for (i, line) in enumerate(lines):
            guid = "%s-%s" % (set_type, i)
            examples.append(InputExample(guid=guid, text_a=line[1], label=line[0]))
        return examples
""")
    (tmp_path / "train.tsv").write_text('positive\ta "b\nnegative\tc\n')
    data = load_task_module(str(path), str(tmp_path))
    assert [(e.guid, e.text_a, e.label) for e in data.read("train")] == [
        ("train-0", 'a "b', "positive"),
        ("train-1", "c", "negative"),
    ]
    with pytest.raises(UserError, match=r"task\.py.*: NotImplementedError"):
        data.read("eval")


def test_quotechar_is_respected(tmp_path):
    (tmp_path / "a.tsv").write_text('"a\tb"\tc\n')
    assert script.DataProcessor._read_tsv(str(tmp_path / "a.tsv"), quotechar='"') == [["a\tb", "c"]]


def test_records_with_tpu_padding(tokenizer, tmp_path):
    examples = [run_classifier.InputExample("1", "good", label="b")]
    while len(examples) % 4:
        examples.append(run_classifier.PaddingInputExample())
    path = str(tmp_path / "eval.tf_record")
    run_classifier.file_based_convert_examples_to_features(examples, ["a", "b"], 4, tokenizer, path)
    lengths = {"input_ids": 4, "input_mask": 4, "segment_ids": 4}
    spec = {name: tf.io.FixedLenFeature([size], tf.int64) for name, size in lengths.items()}
    for name in ("label_ids", "is_real_example"):
        spec[name] = tf.io.FixedLenFeature([], tf.int64)
    rows = [tf.io.parse_single_example(row, spec) for row in tf.data.TFRecordDataset(path)]
    assert [int(row["is_real_example"]) for row in rows] == [1, 0, 0, 0]
    assert int(rows[0]["label_ids"]) == 1
    ids = tokenizer.convert_tokens_to_ids(["[CLS]", "good", "[SEP]"])
    assert rows[0]["input_ids"].numpy().tolist() == [*ids, 0]


def test_answer_to_a_single_question(tokenizer, tmp_path):
    """Converts one `SquadExample` to features, and their logits to answers."""
    example = run_squad.SquadExample(
        "q1", "the plot", ["The", "Film", "was", "NOT", "slow,", "a", "fast", "story"]
    )
    features = []
    run_squad.convert_examples_to_features(
        [example], tokenizer, 12, 3, 4, is_training=False, output_fn=features.append
    )
    assert [feature.unique_id for feature in features] == [10**9 + n for n in range(len(features))]
    assert features[0].tokens[:4] == ["[CLS]", "the", "plot", "[SEP]"]
    assert [len(feature.input_ids) for feature in features] == [12] * len(features)
    results = []
    for feature in features:
        start, end = np.zeros((2, 12))
        for index, word in feature.token_to_orig_map.items():
            start[index] = 9.0 * (word == 3)  # NOT
            end[index] = 9.0 * (word == 4)  # slow,
        results.append(run_squad.RawResult(feature.unique_id, start.tolist(), end.tolist()))
    paths = [str(tmp_path / name) for name in ("predictions.json", "nbest.json", "null_odds.json")]
    run_squad.write_predictions([example], features, results, 20, 30, True, *paths)
    assert json.loads(Path(paths[0]).read_text())["q1"].startswith("NOT slow")
    assert json.loads(Path(paths[1]).read_text())["q1"][0]["start_logit"] == 9.0
    assert not Path(paths[2]).exists()


def test_version_2_with_negative_flag(tmp_path, monkeypatch, tokenizer):
    question = {"id": "1", "question": "good", "is_impossible": True, "answers": []}
    paragraph = {"context": "the film", "qas": [question]}
    path = tmp_path / "train.json"
    path.write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
    monkeypatch.setattr(run_squad.FLAGS, "version_2_with_negative", True)
    (example,) = run_squad.read_squad_examples(input_file=str(path), is_training=True)
    assert (example.is_impossible, example.start_position) == (True, -1)
    assert example.doc_tokens == ["the", "film"]
    features = []
    run_squad.convert_examples_to_features([example], tokenizer, 12, 3, 4, True, features.append)
    assert (features[0].start_position, features[0].end_position) == (0, 0)
    result = run_squad.RawResult(features[0].unique_id, [5.0] + [0.0] * 11, [5.0] + [0.0] * 11)
    paths = [str(tmp_path / name) for name in ("p.json", "n.json", "o.json")]
    run_squad.write_predictions([example], features, [result], 5, 5, True, *paths)
    assert json.loads((tmp_path / "p.json").read_text()) == {"1": ""}
    assert json.loads((tmp_path / "o.json").read_text()) == {"1": 10.0}


def test_get_final_text():
    assert run_squad.get_final_text("steve smith", "Steve Smith's", True) == "Steve Smith"


def test_extract_features_input_lines(tokenizer, tmp_path):
    (tmp_path / "in.txt").write_text("the good film\na b ||| c \n")
    examples = extract_features.read_examples(str(tmp_path / "in.txt"))
    assert [tuple(example) for example in examples] == [(0, "the good film", None), (1, "a b", "c")]
    first, second = extract_features.convert_examples_to_features(
        examples=examples, seq_length=7, tokenizer=tokenizer
    )
    assert first.tokens == ["[CLS]", "the", "good", "film", "[SEP]"]
    assert (second.unique_id, second.input_type_ids) == (1, [0, 0, 0, 0, 1, 1, 0])


def test_graph_mode_errors_name_the_replacement(tiny, tokenizer):
    """Building a graph by hand is not supported."""
    config = modeling.BertConfig.from_json_file(tiny.flags["bert_config_file"])
    with pytest.raises(UserError, match=r"use BertModel\("):
        modeling.BertModel(config, is_training=False, input_ids=1)
    with pytest.raises(UserError, match=r"use bert_tf\.checkpoint\.restore\(model, prefix\)"):
        modeling.get_assignment_map_from_checkpoint([], tiny.checkpoint)
    model = modeling.BertModel(config)
    checkpoint.restore(model, tiny.checkpoint)
    with pytest.raises(UserError, match=r'use model\(inputs\)\["pooled_output"\]'):
        model.get_pooled_output()
    ids = tokenizer.convert_tokens_to_ids(["[CLS]", "good", "[SEP]"])
    assert model({"input_ids": np.array([ids])})["pooled_output"].shape == (1, 16)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((0.7, 2e-5, 100, 10, False), {}),
        ((), {"loss": 0.7, "init_lr": 2e-5, "num_train_steps": 9, "num_warmup_steps": 0}),
    ],
)
def test_create_optimizer_names_the_replacement(args, kwargs):
    with pytest.raises(UserError, match=r"(?i)use create_optimizer\(init_lr"):
        optimization.create_optimizer(*args, **kwargs)


def test_names_in_the_original_tokenizer_tests():
    assert tokenization._is_whitespace("\u00a0")
    assert tokenization._is_control("\u0005")
    assert tokenization._is_punctuation("$")


def test_modules_of_the_original_can_be_imported_from_the_package():
    from bert_tf import compat, run_classifier
    from bert_tf.run_classifier import DataProcessor
    from bert_tf.run_squad import read_squad_examples

    assert run_classifier.DataProcessor is DataProcessor
    assert compat.run_squad.read_squad_examples is read_squad_examples
