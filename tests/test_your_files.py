"""Every example of docs/your_files.md is read, by the command of its section, as it should be."""

import gzip
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from bert_tf.finetuning.model_files import find_model_files, load_config_and_tokenizer
from bert_tf.finetuning.run_checks import give_schema
from bert_tf.options import cli, registry
from bert_tf.tasks.pretraining.corpus import load_encoder, read_documents
from bert_tf.tasks.token_classification.conll import read_conll
from tests.oracle import ROOT

_PAGE = (ROOT / "docs/your_files.md").read_text(encoding="utf-8")
_CODE = re.compile("`([^`]+)`")
_SYMBOLS = {ord("→"): "\t", ord("⏎"): ""}
_FOOD, _SOUP = "Great food, and cheap.", "Cold soup."
_GOOD, _BAD = (_FOOD, None, "good"), (_SOUP, None, "bad")
_SCORES = [(_FOOD, None, 4.5), (_SOUP, None, 1.2)]
_PAIR = "Is it good?"
_ANNA = [("Anna", "B-PER"), ("slept", "O")]
_TWO = [*_ANNA, ("Anna", "B-PER"), ("ate", "O")]
_CHINESE = [*zip("安娜睡了安娜来了", ["B-PER", "I-PER", "O", "O"] * 2, strict=True)]
_WHEN = ("When?", "It began in 1990.", "1990")
_OPENS = "The door opens."
_WHERE, _WHO = ("Where?", ("here", "there"), 1), ("Who?", ("he", "she"), 1)

# What each layout contains: texts and labels, words and labels, questions with text and answer, or
# a context with its endings and the index of the correct one. `...`: as in the row before.
EXPECTED = {
    "TSV: tabs; quotes are part of the text": [_GOOD, _BAD],
    "TSV in quotes, as of pandas, Excel or R": ...,
    "CSV: commas, semicolons or tabs, or as Excel's first line `sep=;` says": ...,
    "no header: numbers of columns, from 1": ...,
    "further cells at the end of some rows (STS benchmark); most columns are not read": _SCORES,
    "JSON lines": [_GOOD, _BAD],
    "a list in JSON": ...,
    "an array per line, or a list of them; numbers of columns, or names in the first": ...,
    "a list for each split (CLINC150)": ...,
    "columns, as pandas writes them by default; also other values of `orient`": ...,
    "nested JSON: paths": ...,
    "a folder for each label, a file for each text": ...,
    "rows without a label": ...,
    "columns that differ between files": [_GOOD, _BAD, (_FOOD, None, None), (_SOUP, None, None)],
    "pairs of texts": [(_PAIR, _FOOD, "good"), (_PAIR, _SOUP, "bad")],
    "several labels in a cell": [(_FOOD, None, ("food", "price")), (_SOUP, None, ("food",))],
    "a list of labels": ...,
    "a 0/1 column for each label": ...,
    "0 and 1 for each label in an object": ...,
    "a number": _SCORES,
    "several numbers": [(_FOOD, None, (4.5, 3.9)), (_SOUP, None, (1.2, 2.5))],
    "a list of numbers, also in a cell of a table": ...,
    "columns, separated by spaces or tabs; a blank line after each sentence": _ANNA,
    "columns with names": ...,
    "columns with numbers, and comments (GermEval 2014, MultiCoNER)": ...,
    "a character per line (KLUE); a space is a word, if tabs separate the columns": [
        ("안", "B-PS"),
        ("나", "I-PS"),
        ("\xa0", "O"),
        ("잠", "O"),
    ],
    "CSV; a sentence begins after a blank line, or with a new value in a column named "
    "`sentence...` (Kaggle's GMB)": _ANNA,
    "words with a prefix (WikiANN) or suffix; several: a list with commas": ...,
    "CoNLL-2012": ...,
    "CoNLL-U; without flags, UPOS is the label": [("Anna", "NNP"), ("slept", "VBD")],
    "CoNLL-U Plus, as PARSEME's `.cupt`: the names of the columns in a comment": _ANNA,
    "a sentence per line (MSRA)": _CHINESE,
    "JSON: words and labels": _TWO,
    "JSON: spans of characters (doccano)": ...,
    "JSON: spans as objects (Prodigy, Label Studio's JSON-MIN)": ...,
    "JSON: spans of words, with the end after the last word (SpERT) or at it (GLiNER)": ...,
    "JSON: pairs of a text and an object (spaCy)": ...,
    "JSON: Label Studio's full export": ...,
    "JSON: types with texts and places (CLUENER)": _CHINESE,
    "other keys in JSON": _TWO,
    "plain sentences, only to predict": [
        *_ANNA,
        *((word, None) for word in ["Anna", "slept", ".", "Anna", "met", "Bob", "in", "Bonn", "."]),
    ],
    "SQuAD 1.1; also DRCD, KorQuAD, XQuAD, MLQA, TyDi QA": [_WHEN],
    "SQuAD 2.0": ...,
    "a question per line, as Hugging Face writes SQuAD": [
        _WHEN,
        ("When?", "It ended in 1999.", "1999"),
    ],
    "a text per line (MRQA)": [_WHEN],
    "SWAG; other columns are ignored": [
        (_OPENS, ("She sings.", "She flies.", "She walks in.", "She falls."), 2)
    ],
    "other columns; the answer as a letter": [(_OPENS, ("She sings.", "She walks in."), 1)],
    "a list in JSON (HellaSwag)": [
        (_OPENS, ("She sings.", "She walks in."), 1),
        ("The phone rings.", ("She sings.", "She answers."), 1),
    ],
    "objects (CommonsenseQA, OpenBookQA, ARC)": [_WHERE, _WHO],
    "two lists (Hugging Face's ARC)": ...,
    "an object of texts (MedQA)": ...,
    "endings in columns, in JSON (COPA)": [
        ("I ran.", ("cause I was late.", "cause I slept."), 0),
        ("I ate.", ("effect I was full.", "effect I slept."), 0),
    ],
    "pairs that match": [("When?", "In 1990.", (), 1.0), ("Who?", "Anna.", (), 1.0)],
    "pairs with other texts that do not match": [
        ("When?", "In 1990.", ("In Bonn.", "Anna."), 1.0),
        ("Who?", "Anna.", ("In Bonn.",), 1.0),
    ],
    "a list of such texts in JSON": ...,
    "a list of texts that match (BGE): each makes a pair": [
        ("When?", "In 1990.", ("In Bonn.",), 1.0),
        ("When?", "It began then.", ("In Bonn.",), 1.0),
    ],
    "lists of objects: paths (DPR, Tevatron)": ...,
    "labels that say whether texts match": [("He ran.", "He moved.", ("He sat.",), 1.0)],
    "scores": [("He ran.", "He moved.", (), 1.0), ("He ran.", "He sat.", (), 0.25)],
    "the STS benchmark as published: `.csv` with tabs; quotes are text; further cells": ...,
    "queries, passages and judgments (BEIR)": [("When?", "1990 It began.", (), 1.0)],
    "`extract_features.py`: a text per line": ["the first text .", "the second one ."],
    "`extract_features.py`: pairs": [
        "the first text . [SEP] its end .",
        "the second one . [SEP] its end .",
    ],
    "`extract_features.py`: tables, as of `run_classifier.py`": [
        "the first text .",
        "the second one .",
    ],
    "`predict_masked.py`: texts with masks": ["The first [MASK].", "The [MASK] one."],
    "`predict_masked.py`: tables, as of `run_classifier.py` (LAMA)": ...,
    "`create_pretraining_data.py`: a sentence per line, a blank line between documents": [2, 2],
}


def _parse_page():
    """Returns name -> (path -> lines, command) of each layout of the page."""
    layouts, block = {}, ""
    for text, row in re.findall(r"^```text\n(.*?)^```$|^\| ([^\n]*) \|$", _PAGE, re.M | re.S):
        block = text.replace("\\\n", "") or block
        name, *cells = (cell.strip() for cell in re.split(r"(?<!\\)\|", row))
        if len(cells) != 3 or not cells[0].startswith("`"):
            continue
        paths, lines, flags = ([code.strip() for code in _CODE.findall(cell)] for cell in cells)
        lines = [line.translate(_SYMBOLS).replace("\\|", "|") for line in lines]
        share = len(lines) // len(paths)
        contents = {path: lines[n * share :][:share] for n, path in enumerate(paths)}
        script = _CODE.match(name)
        start = script[1] if script else r"\w+\.py"
        command = re.search(rf"^python ({start} .*)$", block, re.M)[1]
        layouts[name] = contents, command.replace("FLAGS", "".join(flags))
    return layouts


_LAYOUTS = _parse_page()


@pytest.fixture
def read(tmp_path, monkeypatch):
    """A function that writes the files of a layout, runs its command and returns what it read."""
    monkeypatch.chdir(tmp_path)

    def run(name):
        contents, command = _LAYOUTS[name]
        for path, lines in contents.items():
            file = Path("data", path)
            file.parent.mkdir(parents=True, exist_ok=True)
            content = "".join(f"{line}\n" for line in lines).encode()
            file.write_bytes(gzip.compress(content) if path.endswith(".gz") else content)
        model = str(ROOT / "examples/small_bert")
        script, *flags = shlex.split(command.replace("$BERT_BASE_DIR", model))
        script = script.removesuffix(".py")
        options = cli.parse(registry.SCRIPTS[script].options_class, [script, *flags])
        options.check()
        return _READERS[script](options)

    return run


def _read_splits(options):
    """Yields the task and its examples, of each split that a training run reads."""
    options, sources = find_model_files(options)
    make_task = registry.load(registry.SCRIPTS[registry.script_of(type(options))].make_task)
    model_files = load_config_and_tokenizer(options, sources)
    task = give_schema(make_task(options, *model_files))
    splits = ["train", *["eval"] * hasattr(options, "dev_fraction")]
    for split in splits + ["predict"] * options.do_predict:
        yield task, task.read(split)


def _read_texts(options):
    for task, examples in _read_splits(options):
        for example in examples:
            label = example.label
            if label and task.schema.entries["problem_type"] == "regression":
                label = float(label) if isinstance(label, str) else (*map(float, label),)
            yield example.text_a, example.text_b, label


def _read_words(options):
    for _, sentences in _read_splits(options):
        file = sentences.file
        yield from zip(file.words, file.targets or [None] * len(file.words), strict=True)


def _read_questions(options):
    for _, windows in _read_splits(options):
        for question in windows.questions:
            text = " ".join(question.doc_tokens)
            yield question.question_text, text, question.orig_answer_text


def _read_choices(options):
    for _, questions in _read_splits(options):
        yield from questions


def _read_matches(options):
    for task, matches in _read_splits(options):
        list(task.check("train", matches, matches))
        yield from matches


def _extract(options):
    registry.run(options)
    rows = map(json.loads, Path(options.output_file).read_text().splitlines())
    tokens = ([feature["token"] for feature in row["features"]] for row in rows)
    return [" ".join(row[1:-1]) for row in tokens]


def _predict_masked(options):
    options = replace(options, output_format="jsonl", output_file="words.jsonl")
    registry.run(options)
    return [json.loads(line)["text"] for line in Path("words.jsonl").read_text().splitlines()]


def _count_sentences(options):
    documents = read_documents(options.input_file.split(","), load_encoder(options))
    return [len(document) for document in documents]


_READERS = {
    "run_classifier": _read_texts,
    "run_ner": _read_words,
    "run_squad": _read_questions,
    "run_multiple_choice": _read_choices,
    "run_embeddings": _read_matches,
    "extract_features": _extract,
    "predict_masked": _predict_masked,
    "create_pretraining_data": _count_sentences,
}


def test_every_layout_is_expected():
    assert list(_LAYOUTS) == list(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_layout_is_read(read, name):
    names = list(EXPECTED)
    known = [name for name in names[: names.index(name) + 1] if EXPECTED[name] is not ...]
    # The dev set that is held out may be any of the rows.
    assert sorted(read(name), key=repr) == sorted(EXPECTED[known[-1]], key=repr)


_SCHEMES = re.findall(r"^\| (\w+).* \| `([BIP(][^`]*)`.* \|$", _PAGE, re.M)


@pytest.mark.parametrize(("name", "labels"), _SCHEMES)
def test_scheme_is_that_of_entities(tmp_path, name, labels):
    words = ["Anna", "Maria", "Berg", "slept", "well", "in", "Bonn", "today"]
    rows = [f"{word} {label}\n" for word, label in zip(words, labels.split(), strict=True)]
    (tmp_path / "train.txt").write_text("".join(rows))
    file = read_conll(str(tmp_path / "train.txt"))
    bio = [label.replace("S-", "B-").replace("E-", "I-") for label in file.targets]
    assert bio == ["B-PER", "I-PER", "I-PER", "O", "O", "O", "B-LOC", "O"]
