"""predict_masked end to end, compared with a plain computation, and with a real vocabulary."""

import io
import itertools
import json
import os
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from bert_tf import checkpoint, checkpoints
from bert_tf.base.errors import UserError
from bert_tf.config import BertConfig
from bert_tf.modeling import BertPretrainer
from bert_tf.options import MaskedWordsOptions
from bert_tf.tasks.fill_mask import fill_mask
from bert_tf.tokenization import FullTokenizer
from tests.conftest import SIZES
from tests.oracle import ROOT
from tests.tasks.two_devices import run_on_two_devices

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]"]
WORD_STARTS = ["a", "b", "good", "bad", "film", "the", ".", "goods", "über"]
CONTINUATIONS = ["##s", "##y", "##ness", "##e"]
LINES = [
    "the [MASK] film .",
    "",
    "[MASK]",
    "a [MASK] b [MASK] c [MASK] [MASK] [MASK] .",
    "x[MASK]s",
]
# Number of masks in each non-blank line.
MASKS = [1, 1, 5, 1]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A checkpoint with all heads; its vocab_size exceeds the vocabulary."""
    folder = tmp_path_factory.mktemp("pretrained")
    names = [*SPECIAL, *WORD_STARTS, *CONTINUATIONS]
    (folder / "vocab.txt").write_text("\n".join(names) + "\n")
    # Large weights give distinct probabilities.
    config = BertConfig(len(names) + 3, **SIZES, initializer_range=0.3)
    (folder / "bert_config.json").write_text(config.to_json_string())
    keras.utils.set_random_seed(3)
    pretrainer = BertPretrainer(config)
    values = {n: v.value for n, v in checkpoints.named_variables(pretrainer).items()}
    prefix = str(folder / "bert_model.ckpt")
    checkpoint.write(prefix, values)
    return SimpleNamespace(
        folder=folder, names=names, values=values, prefix=prefix, pretrainer=pretrainer
    )


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in LINES))
    return tmp_path


def options(model, folder, **changes):
    return MaskedWordsOptions(
        **{
            "bert_config_file": str(model.folder / "bert_config.json"),
            "vocab_file": str(model.folder / "vocab.txt"),
            "init_checkpoint": model.prefix,
            "input_file": str(folder / "in.txt"),
            "output_file": str(folder / "out"),
            "output_format": "jsonl",
            "max_seq_length": 24,
            "batch_size": 2,
            **changes,
        }
    )


def run(model, folder, **changes):
    fill_mask.run(options(model, folder, **changes))
    return [json.loads(line) for line in (folder / "out").read_text().splitlines()]


def fill(model, folder, texts, **changes):
    return fill_mask.FillMask(options(model, folder, **changes)).fill(texts)


def mask_probabilities(model, tokens, fits=lambda name: True):
    """Returns, for each [MASK] of a row, a softmax over the valid pieces (one row at a time)."""
    ids = [model.names.index(token) for token in ["[CLS]", *tokens, "[SEP]"]]
    mask_positions = [index for index, number in enumerate(ids) if model.names[number] == "[MASK]"]
    inputs = {"input_ids": np.array([ids]), "masked_lm_positions": np.array([mask_positions])}
    outputs = model.pretrainer(inputs)
    logits = np.array(outputs["masked_lm_logits"][0], np.float64)[:, : len(model.names)]
    logits[:, [not fits(name) for name in model.names]] = -np.inf
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def tokens_of(model, text):
    tokenizer = FullTokenizer(str(model.folder / "vocab.txt"))
    parts = [tokenizer.tokenize(part) for part in text.split("[MASK]")]
    return [*parts[0], *itertools.chain(*(["[MASK]", *part] for part in parts[1:]))]


def assert_likeliest(candidates, probabilities, names):
    """Asserts that the candidates have the highest probabilities, in descending order."""
    order = np.argsort(-probabilities, kind="stable")[: len(candidates)]
    assert [candidate.word for candidate in candidates] == [names[index] for index in order]
    actual = [candidate.probability for candidate in candidates]
    np.testing.assert_allclose(actual, probabilities[order], rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("flags", [{}, {"fixed_shapes": True}, {"jit_compile": "true"}])
def test_pieces_match_a_plain_softmax(model, folder, flags):
    texts = [line for line in LINES if line]
    masks_per_text = fill(model, folder, texts, **flags)
    assert [len(masks) for masks in masks_per_text] == MASKS
    for text, masks in zip(texts, masks_per_text, strict=True):
        expected = mask_probabilities(model, tokens_of(model, text))
        for candidates, probabilities in zip(masks, expected, strict=True):
            assert len(candidates) == 5
            assert_likeliest(candidates, probabilities, model.names)


def test_all_pieces(model, folder):
    # top_k exceeds the number of pieces.
    ((candidates,),) = fill(model, folder, ["the [MASK]"], top_k=1000)
    (expected,) = mask_probabilities(model, tokens_of(model, "the [MASK]"))
    assert len(candidates) == len(model.names)
    assert_likeliest(candidates, expected, model.names)
    assert sum(candidate.probability for candidate in candidates) == pytest.approx(1, abs=1e-5)


def test_bfloat16_is_close_to_float32(model, folder):
    ((candidates,),) = fill(model, folder, ["the [MASK]"], top_k=1000, precision="bfloat16")
    (expected,) = mask_probabilities(model, tokens_of(model, "the [MASK]"))
    probability_by_word = {candidate.word: candidate.probability for candidate in candidates}
    np.testing.assert_allclose(
        [probability_by_word[name] for name in model.names], expected, atol=0.03
    )


def score_whole_words(model, text):
    """Scores all words of one or two pieces for the only mask of a text, one at a time."""

    def distribution(pieces, valid):
        tokens = tokens_of(model, text)
        index = tokens.index("[MASK]")
        tokens[index : index + 1] = pieces
        (probabilities, *_) = mask_probabilities(model, tokens, valid.__contains__)
        return dict(zip(model.names, probabilities, strict=True))

    singles = distribution(["[MASK]"], WORD_STARTS)
    scores = {name: singles[name] for name in WORD_STARTS}
    firsts = distribution(["[MASK]", "[MASK]"], WORD_STARTS)
    tokenizer = FullTokenizer(str(model.folder / "vocab.txt"))
    for first in WORD_STARTS:
        seconds = distribution([first, "[MASK]"], CONTINUATIONS)
        for second in CONTINUATIONS:
            word = first + second[2:]
            if tokenizer.tokenize(word) == [first, second]:
                scores[word] = firsts[first] * seconds[second]
    return scores


@pytest.mark.parametrize(
    ("text", "top_k"), [("the [MASK] film .", 15), ("[MASK]", 9), ("b [MASK]", 9)]
)
def test_whole_words_match_a_plain_search(model, folder, text, top_k):
    # The beam is as wide as the number of word beginnings, so the search is exhaustive.
    assert top_k >= len(WORD_STARTS)
    ((candidates,),) = fill(model, folder, [text], top_k=top_k, whole_word=True, max_word_pieces=2)
    expected = score_whole_words(model, text)
    # `good` + `##s` would be `goods`, which is a single token, and `.` is never continued.
    # The umlaut is stripped before tokenization.
    assert {"goodness", "bads"} <= expected.keys()
    assert ".s" not in expected
    assert "übers" not in expected
    names = list(expected)
    assert len(candidates) == top_k
    assert any(candidate.word not in WORD_STARTS for candidate in candidates)
    assert_likeliest(candidates, np.array([expected[name] for name in names]), names)


def test_whole_words_keep_other_masks(model, folder):
    text = "a [MASK] b [MASK]"
    (masks,) = fill(model, folder, [text], whole_word=True, max_word_pieces=1)
    expected = mask_probabilities(model, tokens_of(model, text), WORD_STARTS.__contains__)
    for candidates, probabilities in zip(masks, expected, strict=True):
        assert_likeliest(candidates, probabilities, model.names)
    ((candidates_alone,),) = fill(model, folder, ["the [MASK]"], whole_word=True, top_k=1)
    ((best, *_),) = fill(model, folder, ["the [MASK]"], whole_word=True, top_k=5)[0]
    assert len(candidates_alone) == 1
    assert candidates_alone[0].probability <= best.probability + 1e-6


def test_vocabulary_without_continuations(tiny, model, folder):
    config = BertConfig(19, **SIZES)
    pretrainer = BertPretrainer(config)
    variables = checkpoints.named_variables(pretrainer)
    prefix = str(folder / "model.ckpt-1")
    checkpoint.write(prefix, {name: variable.value for name, variable in variables.items()})
    flags = {name: tiny.flags[name] for name in ("vocab_file", "bert_config_file")}
    ((candidates,),) = fill(
        model, folder, ["the [MASK]"], init_checkpoint=prefix, whole_word=True, top_k=30, **flags
    )
    assert len(candidates) == 14
    assert not any(candidate.word.startswith("[") for candidate in candidates)


@pytest.mark.parametrize("flags", [{}, {"whole_word": True, "max_word_pieces": 2}])
def test_long_texts(model, folder, flags, run_log):
    """Masks in long texts see the surrounding tokens, and texts do not affect each other."""
    long_text = "good " * 40 + "bad [MASK] film " + "the " * 40 + "[MASK] " + "a b " * 20
    (folder / "in.txt").write_text(f"{long_text}\nthe [MASK]\n")
    first, second = run(model, folder, max_seq_length=9, **flags)
    expected = fill(
        model, folder, ["good good bad [MASK] film the the", "the the the [MASK] a b a"], **flags
    )
    if not flags:
        words = [[candidate.word for candidate in masks[0]] for masks in expected]
        assert [[candidate["word"] for candidate in mask] for mask in first["masks"]] == words
    assert [len(mask) for mask in first["masks"]] == [5, 5]
    ((candidates_alone,),) = fill(model, folder, ["the [MASK]"], **flags)
    assert [candidate["word"] for candidate in second["masks"][0]] == [
        c.word for c in candidates_alone
    ]
    assert "1 of 2 texts is longer than --max_seq_length=9" in run_log.text


@pytest.mark.parametrize("flags", [{}, {"whole_word": True}])
def test_batching_does_not_change_predictions(model, folder, monkeypatch, flags):
    expected = run(model, folder, **flags)
    assert [line["line"] for line in expected] == [1, 3, 4, 5]
    assert [line["text"] for line in expected] == [line for line in LINES if line]
    assert [len(line["masks"]) for line in expected] == MASKS
    monkeypatch.setattr(fill_mask, "_MAX_TEXTS", 1)
    monkeypatch.setattr(fill_mask, "_MAX_ROWS", 2)
    for actual, expected_line in zip(run(model, folder, **flags), expected, strict=True):
        assert_equal_lines(actual, expected_line)


def assert_equal_lines(actual, expected):
    """Asserts that JSON lines are equal, up to rounding of probabilities."""
    assert actual.keys() == expected.keys()
    assert (actual["line"], actual["text"]) == (expected["line"], expected["text"])
    for masks in zip(actual["masks"], expected["masks"], strict=True):
        actual_words, expected_words = ([candidate["word"] for candidate in mask] for mask in masks)
        assert actual_words == expected_words
        values = [[candidate["probability"] for candidate in mask] for mask in masks]
        np.testing.assert_allclose(*values, atol=3e-6)


def test_several_threads(model, folder):
    filler = fill_mask.FillMask(options(model, folder, whole_word=True))
    texts = [line for line in LINES if line] * 3
    expected = filler.fill(texts)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(filler.fill, [texts] * 4))
    assert filler.num_texts == 5 * len(texts)
    for result in results:
        for masks in zip(itertools.chain(*result), itertools.chain(*expected), strict=True):
            actual_words, expected_words = ([c.word for c in mask] for mask in masks)
            assert actual_words == expected_words


def test_text_on_the_command_line(model, folder, capsysbinary):
    flags = {"input_file": None, "text": " the\n[MASK] \udce9 "}
    flags |= {"output_file": "-", "output_format": "table"}
    fill_mask.run(options(model, folder, **flags))
    text, *lines = capsysbinary.readouterr().out.splitlines()
    # The invalid UTF-8 byte is returned unchanged.
    assert text == b"the [MASK] \xe9"
    assert [len(line.split()) for line in lines] == [2] * 5 + [0]


def test_unknown_words_warn(model, folder, run_log):
    run(model, folder)
    assert "[UNK]" not in run_log.text
    (folder / "in.txt").write_text("ภาษาไทย [MASK]\n" * 6, encoding="utf-8")
    run(model, folder, text_column=None)
    assert f"{folder / 'in.txt'}: 100.0% of the tokens (6 of 6) are [UNK]" in run_log.text
    predict = fill_mask.FillMask(options(model, folder, input_file=None))
    for _ in range(3):
        predict(["ภาษาไทย [MASK]"] * 4)
    assert run_log.text.count("Inputs: 100.0% of the tokens (8 of 8) are [UNK]") == 1


def test_table_warns(model, folder, run_log):
    (folder / "in.tsv").write_text("1\tthe [MASK]\n2\tnot [MASK]\n")
    run(model, folder, input_file=str(folder / "in.tsv"))
    message = "2 of 2 lines have tabs, JSON or HTML"
    assert message in run_log.text


@pytest.mark.parametrize(
    ("name", "content", "column"),
    [
        ("in.jsonl", '{"a": ["the [MASK]"]}\n{"a": ["not [MASK]"]}\n', "a.0"),
        ("in.tsv", "id\ttext\n1\tthe [MASK]\n2\tnot [MASK]\n", "text"),
        ("in.tsv", "1\tthe [MASK]\n2\tnot [MASK]\n", "2"),
    ],
)
def test_column_of_a_table(model, folder, run_log, name, content, column):
    (folder / name).write_text(content)
    output = run(model, folder, input_file=str(folder / name), text_column=column)
    assert [(row["line"], row["text"]) for row in output] == [(1, "the [MASK]"), (2, "not [MASK]")]
    assert "each line is one text" not in run_log.text


def test_standard_input(model, folder, monkeypatch):
    expected = run(model, folder)
    content = (folder / "in.txt").read_bytes()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    assert run(model, folder, input_file="-") == expected


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes")
def test_pipe_as_input(model, folder):
    expected = run(model, folder)
    pipe, content = folder / "pipe", (folder / "in.txt").read_bytes()
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(content,), daemon=True)
    writer.start()
    assert run(model, folder, input_file=str(pipe)) == expected
    writer.join(10)


@pytest.mark.slow
def test_two_devices_give_the_same_words_as_one(model, folder):
    expected = run(model, folder, whole_word=True)
    run_on_two_devices("predict_masked", options(model, folder, whole_word=True, batch_size=4))
    lines = (folder / "out").read_text().splitlines()
    for actual, expected_line in zip(map(json.loads, lines), expected, strict=True):
        assert_equal_lines(actual, expected_line)


def test_whole_words_of_small_bert(folder):
    """Small BERT loaded in this process; `test_docs.py` runs the script."""
    small = ROOT / "examples" / "small_bert"
    flags = {
        "bert_config_file": str(small / "bert_config.json"),
        "vocab_file": str(small / "vocab.txt"),
        "init_checkpoint": str(small / "bert_model.ckpt"),
    }
    model = fill_mask.FillMask(MaskedWordsOptions(**flags, whole_word=True, top_k=20))
    ((candidates,),) = model.fill(["It was so [MASK] that she could not see anything."])
    probabilities = [candidate.probability for candidate in candidates]
    assert len(candidates) == len({candidate.word for candidate in candidates}) == 20
    assert probabilities == sorted(probabilities, reverse=True)
    assert all(re.fullmatch("[a-z]+", candidate.word) for candidate in candidates), candidates
    pieces = FullTokenizer(flags["vocab_file"]).tokenize
    assert max(len(pieces(candidate.word)) for candidate in candidates) > 1


INVALID_OPTIONS = {
    "no input": ({"input_file": None}, "Pass either --input_file=FILE"),
    "no mask": ({"input_file": None, "text": "nothing"}, "--text: expected a text with [MASK]"),
    "no checkpoint": ({"init_checkpoint": None}, "--init_checkpoint"),
    "top_k": ({"top_k": 0}, "--top_k must be between 1 and 1000"),
    "no whole words": ({"max_word_pieces": 2}, "--max_word_pieces needs --whole_word=true"),
    "no room for pieces": (
        {"whole_word": True, "max_seq_length": 4},
        "--max_seq_length=4 has no room for --max_word_pieces=3",
    ),
    "missing input file": ({"input_file": "nowhere.txt"}, "No such file: nowhere.txt"),
    "missing folder": ({"output_file": "/nowhere/out"}, "there is no folder /nowhere"),
}


@pytest.mark.parametrize("case", INVALID_OPTIONS)
def test_invalid_options_are_rejected_before_work_starts(model, folder, case):
    changes, message = INVALID_OPTIONS[case]
    (folder / "out").write_text("old")
    with pytest.raises(UserError, match=re.escape(message)):
        run(model, folder, **changes)
    assert (folder / "out").read_text() == "old"
    assert sorted(path.name for path in folder.iterdir()) == ["in.txt", "out"]


def test_line_without_mask(model, folder, monkeypatch):
    (folder / "in.txt").write_text("[MASK]\n\nnothing\n")
    # The line is rejected before the model is loaded.
    monkeypatch.setattr(fill_mask, "FillMask", None)
    with pytest.raises(UserError, match=r"in\.txt:3: expected a text with \[MASK\]"):
        run(model, folder)


def test_blank_lines(model, folder, monkeypatch):
    (folder / "in.txt").write_text("\n\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\n \n")))
    for path, name in (("-", "<stdin>"), (str(folder / "in.txt"), "in.txt")):
        with pytest.raises(UserError, match=f"{name} contains no text"):
            run(model, folder, input_file=path)
    assert not (folder / "out").exists()


def test_input_file_is_not_overwritten(model, folder):
    with pytest.raises(UserError, match="is also an input"):
        run(model, folder, output_file=str(folder / "in.txt"))
    assert (folder / "in.txt").read_text().startswith(LINES[0])


def test_vocabulary_without_mask_token(model, folder):
    names = [name.replace("[MASK]", "mask") for name in model.names]
    (folder / "vocab.txt").write_text("\n".join(names) + "\n")
    with pytest.raises(UserError, match=r"vocab\.txt: lacks \[MASK\]"):
        run(model, folder, vocab_file=str(folder / "vocab.txt"))


def test_checkpoint_without_masked_lm_head(model, folder):
    weights = {name: v for name, v in model.values.items() if not name.startswith("cls/pred")}
    checkpoint.write(str(folder / "fine_tuned.ckpt"), weights)
    with pytest.raises(UserError, match=r"no masked-LM head.*cls/predictions \(5\)"):
        run(model, folder, init_checkpoint=str(folder / "fine_tuned.ckpt"))
    assert not (folder / "out").exists()


def test_next_sentence_head_may_be_missing(model, folder):
    expected = run(model, folder)
    weights = {name: v for name, v in model.values.items() if not name.startswith("cls/seq")}
    checkpoint.write(str(folder / "words.ckpt"), weights)
    assert run(model, folder, init_checkpoint=str(folder / "words.ckpt")) == expected


def test_multi_process_runs_are_rejected(model, folder, monkeypatch):
    config = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    with pytest.raises(UserError, match="runs in one process: unset TF_CONFIG"):
        run(model, folder)
