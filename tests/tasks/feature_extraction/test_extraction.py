"""extract_features end to end: output formats, pooling, columns and errors."""

import dataclasses
import io
import json
import os
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoint
from bert_tf.base.errors import UserError
from bert_tf.modeling import BertModel
from bert_tf.options import ExtractionOptions
from bert_tf.tasks import extraction
from bert_tf.tokenization import FullTokenizer
from tests.base.test_files import reader_of
from tests.oracle import ROOT
from tests.tasks.two_devices import run_on_two_devices

LINES = ["the good film", "a ||| b c", "", "slow " * 30, "x not ||| fast ||| it", "plot|||story"]


@pytest.fixture(scope="module")
def tiny(tiny_of_two_layers):
    return tiny_of_two_layers


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in LINES))
    return tmp_path


def options(tiny, folder, **changes):
    flags = {name: tiny.flags[name] for name in ("vocab_file", "bert_config_file")}
    return ExtractionOptions(
        **{
            **flags,
            "init_checkpoint": tiny.checkpoint,
            "input_file": str(folder / "in.txt"),
            "output_file": str(folder / "out"),
            "layers": "-1",
            "max_seq_length": 12,
            "batch_size": 4,
            **changes,
        }
    )


def run(tiny, folder, **changes):
    extraction.run(options(tiny, folder, **changes))
    return folder / "out"


def compute_features(tiny, layer):
    """Returns the tokens and one layer of each text, computed one text at a time."""
    tokenizer = FullTokenizer(tiny.flags["vocab_file"])
    model = BertModel(tiny.config)
    checkpoint.restore(model, tiny.checkpoint)
    features_per_text = []
    for line in LINES:
        a, _, b = line.strip().rpartition(" ||| ")
        first, second = (tokenizer.tokenize(text) for text in (a, b))
        if not a:
            first, second = tokenizer.tokenize(line), []
        max_tokens = 10 - bool(second)  # of 12, without [CLS] and [SEP]
        while len(first) + len(second) > max_tokens:
            (first if len(first) > len(second) else second).pop()
        tokens = ["[CLS]", *first, "[SEP]"]
        segments = [0] * len(tokens) + [1] * (len(second) + 1) * bool(second)
        tokens += [*second, "[SEP]"] if second else []
        ids = tokenizer.convert_tokens_to_ids(tokens)
        out = model({"input_ids": np.array([ids]), "segment_ids": np.array([segments])})
        features_per_text.append((tokens, np.asarray(out["all_encoder_layers"][layer][0])))
    return features_per_text


def test_jsonl_output(tiny, folder):
    path = run(tiny, folder, layers="-1,0")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["linex_index"] for line in lines] == list(range(len(LINES)))
    for index, number in ((-1, 0), (0, 1)):
        for line, (tokens, values) in zip(lines, compute_features(tiny, index), strict=True):
            assert list(line) == ["linex_index", "features"]
            assert [feature["token"] for feature in line["features"]] == tokens
            layers = [feature["layers"][number] for feature in line["features"]]
            assert {layer["index"] for layer in layers} == {index}
            np.testing.assert_allclose([layer["values"] for layer in layers], values, atol=2e-5)
            assert all(value == round(value, 6) for layer in layers for value in layer["values"])


@pytest.mark.parametrize("pooling", ["cls", "mean", "max", "mean_max"])
def test_pooled_jsonl_output(tiny, folder, pooling):
    path = run(tiny, folder, pooling=pooling)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    pool = {"cls": lambda v: v[0], "mean": lambda v: v.mean(0), "max": lambda v: v.max(0)}
    pool["mean_max"] = lambda v: np.concatenate([v.mean(0), v.max(0)])
    for line, (_, values) in zip(lines, compute_features(tiny, -1), strict=True):
        assert list(line) == ["linex_index", "layers"]
        (layer,) = line["layers"]
        np.testing.assert_allclose(layer["values"], pool[pooling](values), atol=2e-5)


@pytest.mark.parametrize("max_bytes", [1 << 28, 1])
def test_array_output(tiny, folder, monkeypatch, max_bytes):
    # The result does not depend on the number of buffered texts.
    monkeypatch.setattr("bert_tf.finetuning.encoder._MAX_BYTES", max_bytes)
    output = np.load(run(tiny, folder, layers="1,-2", output_format="npz"))
    assert output["layers"].tolist() == [1, -2]
    splits = output["row_splits"].tolist()
    assert output["features"].dtype == np.float32
    for row, (tokens, values) in enumerate(compute_features(tiny, 1)):
        part = slice(splits[row], splits[row + 1])
        assert output["tokens"][part].tolist() == tokens
        np.testing.assert_allclose(output["features"][part, 0], values, atol=2e-5)


def test_pooled_array_output(tiny, folder):
    output = np.load(run(tiny, folder, output_format="npz", pooling="cls"))
    assert sorted(output.files) == ["features", "layers"]
    assert output["features"].shape == (len(LINES), 1, tiny.config.hidden_size)


def read_records(path):
    records = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    return [tf.train.Example.FromString(record).features.feature for record in records]


def test_tfrecord_output(tiny, folder):
    path = run(tiny, folder, layers="-1,0", output_format="tfrecord")
    expected = zip(read_records(path), compute_features(tiny, 0), strict=True)
    for row, (record, (tokens, values)) in enumerate(expected):
        assert record["index"].int64_list.value[:] == [row]
        assert [token.decode() for token in record["tokens"].bytes_list.value] == tokens
        vectors = np.reshape(record["layer_0"].float_list.value, values.shape)
        np.testing.assert_allclose(vectors, values, atol=2e-5)


@pytest.mark.parametrize("flags", [{}, {"fixed_shapes": True}, {"precision": "bfloat16"}])
def test_compute_options(tiny, folder, flags):
    output = np.load(run(tiny, folder, output_format="npz", pooling="mean", **flags))
    means = [values.mean(0) for _, values in compute_features(tiny, -1)]
    tolerance = 0.05 if "precision" in flags else 2e-5
    np.testing.assert_allclose(output["features"][:, 0], means, atol=tolerance)


ROWS = "id\ttwo\tone\n0\tb c\ta\n1\t\tthe good film\n"
PAIR_AND_TEXT = "[CLS] a [SEP] b c [SEP] [CLS] the good film [SEP]"


@pytest.mark.parametrize(
    ("text", "flags", "tokens"),
    [
        (ROWS, {"text_column": "one", "text_pair_column": "two"}, PAIR_AND_TEXT),
        (
            ROWS,
            {"text_column": "3", "text_pair_column": "2", "has_header": "yes"},
            PAIR_AND_TEXT,
        ),
        ("a\tb\nc\tnot\n", {"text_column": "2"}, "[CLS] b [SEP] [CLS] not [SEP]"),
    ],
)
def test_input_columns(tiny, folder, text, flags, tokens):
    (folder / "in.txt").write_text(text)
    output = np.load(run(tiny, folder, output_format="npz", **flags))
    assert output["tokens"].tolist() == tokens.split()


def test_columns_of_standard_input(tiny, folder, monkeypatch):
    stream = SimpleNamespace(buffer=io.BytesIO(b"text\tid\na\t1\n"))
    monkeypatch.setattr(sys, "stdin", stream)
    output = np.load(run(tiny, folder, input_file="-", output_format="npz", text_column="text"))
    assert output["tokens"].tolist() == ["[CLS]", "a", "[SEP]"]


def test_standard_input(tiny, folder, monkeypatch):
    content = (folder / "in.txt").read_bytes()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    path = run(tiny, folder, input_file="-")
    assert len(path.read_text().splitlines()) == len(LINES)


def test_truncated_texts_are_counted(tiny, folder, run_log):
    run(tiny, folder)
    assert "1 of 6 texts is longer than max_seq_length=12 and was truncated" in run_log.text


def run_script(flags):
    command = [sys.executable, str(ROOT / "extract_features.py")]
    command += [f"--{name}={value}" for name, value in flags.items() if value is not None]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr


def test_script(tiny, folder):
    run_script(dataclasses.asdict(options(tiny, folder)))
    assert len((folder / "out").read_text().splitlines()) == len(LINES)


INVALID_OPTIONS = {
    "layer 2": ({"layers": "0,2"}, "--layers: there is no layer 2, but 0 to 1"),
    "layer -3": ({"layers": "-3"}, "there is no layer -3"),
    "not an integer": ({"layers": "last"}, "--layers: expected integers"),
    "missing input file": ({"input_file": "nowhere.txt"}, "No such file: nowhere.txt"),
    "no checkpoint": ({"init_checkpoint": None}, "--init_checkpoint"),
    "unknown column": ({"text_column": "text"}, "in.txt:1: there is no column 'text'"),
    "column 0": ({"text_column": "0"}, "in.txt:1: --text_column=0, counting from 1, but"),
    "too few columns": ({"text_column": "3"}, "in.txt:1: --text_column=3, counting from 1, but"),
    "only the column of pairs": ({"text_pair_column": "2"}, "pair_column needs --text_column"),
    "column name without header": ({"text_column": "a", "has_header": "no"}, "--has_header=no"),
    "too long": ({"max_seq_length": 25}, "--max_seq_length=25 exceeds the model's 24"),
    "missing folder": ({"output_file": "/nowhere/out"}, "there is no folder /nowhere"),
}


def test_large_inputs_run_in_parallel(tiny, folder):
    """Runs the script, because TensorFlow already uses several threads in this process."""
    lines = [" ".join(["film", "the", "good"][n % 3 :] * (1 + n % 4)) for n in range(400)]
    (folder / "in.txt").write_text("".join(f"{line}\n" for line in lines))
    run(tiny, folder, pooling="mean", output_format="npz")
    expected = np.load(folder / "out")["features"]
    flags = dataclasses.asdict(options(tiny, folder, pooling="mean", output_format="npz"))
    run_script({**flags, "batch_size": 2, "output_file": folder / "many"})
    np.testing.assert_allclose(np.load(folder / "many")["features"], expected, atol=1e-5)


THREADS = """
import json, sys
from bert_tf.base.quiet import import_tensorflow
import_tensorflow()
import tensorflow as tf
from bert_tf.options import ExtractionOptions
from bert_tf.tasks.extraction import Extractor
Extractor(ExtractionOptions(**json.loads(sys.argv[1])), int(sys.argv[2]))
print(tf.config.threading.get_intra_op_parallelism_threads())
"""


@pytest.mark.parametrize(
    ("changes", "num_texts", "threads"),
    [
        ({"pooling": "mean"}, 4096, 1),
        ({}, 4096, 0),  # TensorFlow chooses.
    ],
)
def test_large_inputs_use_one_thread_per_text(tiny, folder, changes, num_texts, threads):
    run_options = dataclasses.asdict(options(tiny, folder, batch_size=1, **changes))
    command = [sys.executable, "-c", THREADS, json.dumps(run_options, default=str), str(num_texts)]
    process = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert process.returncode == 0, process.stderr
    assert process.stdout.split() == [str(threads)]


@pytest.mark.parametrize("case", INVALID_OPTIONS)
def test_invalid_options_are_rejected_before_work_starts(tiny, folder, case):
    changes, message = INVALID_OPTIONS[case]
    (folder / "out").write_text("old")
    with pytest.raises(UserError, match=re.escape(message)):
        run(tiny, folder, **changes)
    assert (folder / "out").read_text() == "old"
    assert sorted(path.name for path in folder.iterdir()) == ["in.txt", "out"]


@pytest.mark.parametrize("source", ["in.txt", "<stdin>"])
@pytest.mark.parametrize("content", ["", "\n \n"])
def test_empty_input(tiny, folder, monkeypatch, source, content):
    (folder / "in.txt").write_text(content)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
    input_file = str(folder / "in.txt") if source == "in.txt" else "-"
    with pytest.raises(UserError, match=f"{source} contains no text"):
        # The checkpoint is not read before the input.
        run(tiny, folder, input_file=input_file, output_format="npz", init_checkpoint="none")
    assert [path.name for path in folder.iterdir()] == ["in.txt"]


@pytest.mark.parametrize(
    ("name", "prefix"),
    [("x.npz", b"PK"), ("x.TFRECORD", b""), ("x.jsonl", b'{"linex_index'), ("x", b'{"linex_index')],
)
def test_output_format_from_file_name(tiny, folder, name, prefix):
    run(tiny, folder, output_file=str(folder / name), pooling="cls")
    assert (folder / name).read_bytes().startswith(prefix)
    if name == "x.TFRECORD":
        assert len(read_records(folder / name)) == len(LINES)
    run(tiny, folder, output_file=str(folder / name), pooling="cls", output_format="jsonl")
    assert (folder / name).read_bytes().startswith(b'{"linex_index')


def test_tokenizer_settings_come_from_the_folder(tiny, folder):
    model = folder / "model"
    shutil.copytree(tiny.folder, model)
    words = (model / "vocab.txt").read_text().split()
    words[-7:] = ["größe", "füße", "[unused1]", "[E1]", "grosse", "fuße", "uber"]
    (model / "vocab.txt").write_text("\n".join(words) + "\n")
    settings = {"do_lower_case": True, "strip_accents": False, "tokenize_chinese_chars": False}
    (model / "tokenizer_config.json").write_text(json.dumps(settings))
    flags = {"init_checkpoint": str(model), "vocab_file": str(model / "vocab.txt")}

    def tokens(text, **more):
        (folder / "input.txt").write_text(text + "\n")
        extract = extraction.Extractor(options(tiny, folder, **{**flags, **more}))
        return extract([text])[0].tokens[1:-1]

    assert tokens("Größe über Füße") == ["größe", "[UNK]", "füße"]
    assert tokens("Füße über", strip_accents="true") == ["fuße", "uber"]
    assert tokens("a[E1]<x>", special_tokens="[E1],<x>") == ["a", "[E1]", "<x>"]


def test_pretokenized_texts(tiny, folder):
    lines = ["good [MASK] film.", "Good a ||| b c"]
    (folder / "in.txt").write_text("".join(f"{line}\n" for line in lines))
    path = run(tiny, folder, pretokenized=True)
    features_per_line = [json.loads(line)["features"] for line in path.read_text().splitlines()]
    # No lower-casing or punctuation splitting.
    assert [[feature["token"] for feature in features] for features in features_per_line] == [
        ["[CLS]", "good", "[MASK]", "[UNK]", "[SEP]"],
        ["[CLS]", "[UNK]", "a", "[SEP]", "b", "c", "[SEP]"],
    ]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes")
def test_pipe_as_output(tiny, folder):
    expected = run(tiny, folder).read_bytes()
    with reader_of(folder / "pipe", folder / "copy"):
        run(tiny, folder, output_file=str(folder / "pipe"))
    assert (folder / "copy").read_bytes() == expected
    with pytest.raises(UserError, match="pipe: a pipe or device"):
        run(tiny, folder, output_file=str(folder / "pipe"), output_format="npz")
    assert sorted(path.name for path in folder.iterdir()) == ["copy", "in.txt", "out", "pipe"]


def test_input_file_is_not_overwritten(tiny, folder):
    with pytest.raises(UserError, match="is also an input"):
        run(tiny, folder, output_file=str(folder / "in.txt"))
    assert (folder / "in.txt").read_text().startswith(LINES[0])


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["none", "mean"])
def test_two_devices_give_the_same_vectors_as_one(tiny, folder, pooling):
    flags = {"pooling": pooling, "output_format": "npz"}
    single = dict(np.load(run(tiny, folder, **flags)))
    # Six texts: the last batch is not full.
    run_on_two_devices("extract_features", options(tiny, folder, **flags))
    mirrored = dict(np.load(folder / "out"))
    assert single.keys() == mirrored.keys()
    np.testing.assert_allclose(mirrored.pop("features"), single.pop("features"), atol=1e-6)
    for name, values in single.items():
        np.testing.assert_array_equal(mirrored[name], values)


def test_duplicate_layer(tiny, folder):
    path = run(tiny, folder, layers="-1,-1", output_format="tfrecord", pooling="cls")
    values = read_records(path)[0]["layer_-1"].float_list.value
    assert len(values) == tiny.config.hidden_size


def test_closed_standard_input(tiny, folder, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(UserError, match="Standard input is closed: pass a file name"):
        run(tiny, folder, input_file="-")


def test_unknown_words_warning_names_the_file(tiny, folder, run_log):
    (folder / "in.txt").write_text("ภาษาไทย\n" * 6 + "the film\n", encoding="utf-8")
    run(tiny, folder)
    assert f"{folder / 'in.txt'}: 75.0% of the tokens (6 of 8) are [UNK]" in run_log.text


@pytest.mark.parametrize(
    ("changes", "content", "warning"),
    [
        ({"pretokenized": True}, "A Good Film\n" * 5, "most frequent words: A, Good, Film"),
        ({"num_layers": 1}, "good\n", "has more layers than the configuration"),
        ({"output_file": "out.npy"}, "good\n", "Features of 1 text as jsonl: "),
        ({"input_file": "rows.json"}, '[\n{"a": 1}]\n', "each line is read as one text"),
        ({"text_column": "a"}, "a\tb\n1\tgood\n2\tfilm\n", "2 of 2 texts are numbers"),
        ({}, "good ||| film\n\n\n", "in.txt: 2 of 3 texts are empty, first text 2"),
        ({}, "a|||b\nthe film\n", "texts have |||"),
        ({}, "<p>a</p>\n<p>b</p>\n", "2 of 2 lines have tabs, JSON or HTML"),
    ],
)
def test_probable_mistakes_warn(tiny, folder, run_log, changes, content, warning):
    (folder / "in.txt").write_text(content)
    (folder / "rows.json").write_text(content)
    changes = dict(changes)
    if layers := changes.pop("num_layers", None):
        config = {**tiny.config.to_dict(), "num_hidden_layers": layers}
        (folder / "small.json").write_text(json.dumps(config))
        changes["bert_config_file"] = str(folder / "small.json")
    changes = {name: str(folder / v) if name[-5:] == "_file" else v for name, v in changes.items()}
    run(tiny, folder, **changes)
    assert warning in run_log.text
