"""Generates small datasets in the published formats from `examples/reviews`."""

import csv
import json
from pathlib import Path

from tests.oracle import ROOT


def write_all(folder: Path) -> dict[str, str]:
    """Writes all datasets; returns the environment variables that the docs use for their paths."""
    reviews = _read_reviews("train")
    texts = [text for text, _ in reviews]
    _write_glue(folder / "glue", reviews)
    _write_squad(folder / "squad", texts)
    _write_conll(folder / "conll", texts)
    _write_swag(folder / "swag", texts)
    _write_books(folder / "books", texts)
    return {
        "BERT_BASE_DIR": str(ROOT / "examples/small_bert"),
        "GLUE_DIR": str(folder / "glue"),
        "SQUAD_DIR": str(folder / "squad"),
        "CONLL_DIR": str(folder / "conll"),
        "SWAG_DIR": str(folder / "swag"),
        "BOOKS_DIR": str(folder / "books"),
    }


def _read_reviews(split: str) -> list[tuple[str, str]]:
    path = ROOT / f"examples/reviews/{split}.tsv"
    with open(path, encoding="utf-8") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [(row["text"], row["label"]) for row in rows]


def _write_glue(folder: Path, reviews: list[tuple[str, str]]) -> None:
    splits = {"train": reviews[:96], "dev": reviews[96:128], "test": reviews[128:144]}
    for split, rows in splits.items():
        texts = [text for text, _ in rows]
        # Every second pair repeats the same text.
        pairs = [(text, texts[n - n % 2]) for n, text in enumerate(texts)]
        mrpc = [["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]]
        mrpc += [[str(1 - n % 2), str(n), str(n), *pair] for n, pair in enumerate(pairs)]
        labeled = [[text, str(int(label == "positive"))] for text, label in rows]
        unlabeled = [[str(n), text] for n, text in enumerate(texts)]
        _write_tsv(folder / f"MRPC/{split}.tsv", mrpc)
        if split == "test":
            _write_tsv(folder / "SST-2/test.tsv", [["index", "sentence"], *unlabeled])
            _write_tsv(folder / "CoLA/test.tsv", [["index", "sentence"], *unlabeled])
        else:
            _write_tsv(folder / f"SST-2/{split}.tsv", [["sentence", "label"], *labeled])
            cola = [["own", label, "", text] for text, label in labeled]
            _write_tsv(folder / f"CoLA/{split}.tsv", cola)


def _write_tsv(path: Path, rows: list[list[str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")


def _write_squad(folder: Path, texts: list[str]) -> None:
    folder.mkdir(parents=True)
    for version in ("1.1", "2.0"):
        for split, begin, end in (("train", 0, 90), ("dev", 90, 120)):
            paragraphs = [
                _make_paragraph(
                    " ".join(texts[start : start + 3]), f"{split}{start}", version == "2.0"
                )
                for start in range(begin, end, 3)
            ]
            data = [{"title": "Reviews", "paragraphs": paragraphs}]
            dataset = {"version": version, "data": data}
            (folder / f"{split}-v{version}.json").write_text(json.dumps(dataset))


def _make_paragraph(context: str, name: str, with_unanswerable: bool) -> dict:
    word = context.split()[2].strip(".,;:!?")
    answer = {"text": word, "answer_start": context.index(word)}
    question = {"id": f"{name}-1", "question": "What is the third word?", "answers": [answer]}
    if not with_unanswerable:
        return {"context": context, "qas": [question]}
    unanswerable = {"id": f"{name}-2", "question": "Who was king?", "answers": []}
    return {
        "context": context,
        "qas": [{**question, "is_impossible": False}, {**unanswerable, "is_impossible": True}],
    }


def _write_conll(folder: Path, texts: list[str]) -> None:
    folder.mkdir(parents=True)
    for split, begin, end in (("train", 0, 60), ("dev", 60, 90), ("test", 90, 110)):
        lines = ["-DOCSTART- -X- -X- O", ""]
        for number, text in enumerate(texts[begin:end]):
            city = ("Paris", "Oslo", "Lima")[number % 3]
            lines += [f"{word} NN B-NP O" for word in text.split()]
            lines += [f"{city} NNP B-NP B-LOC", ""]
        (folder / f"{split}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _write_swag(folder: Path, texts: list[str]) -> None:
    folder.mkdir(parents=True)
    ending_columns = [f"ending{number}" for number in range(4)]
    for split, begin, end in (("train", 0, 48), ("val", 48, 64), ("test", 64, 72)):
        with open(folder / f"{split}.csv", "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(
                ["video-id", "sent1", "sent2", *ending_columns, "label"][: 7 + (split != "test")]
            )
            for number in range(begin, end):
                words, label = texts[number].split(), number % 4
                endings = ["nobody"] * 4
                endings[label] = words[-1]
                row = [f"film{number}", " ".join(words[:-1]), "Then", *endings, label]
                writer.writerow(row[: 7 + (split != "test")])


def _write_books(folder: Path, texts: list[str]) -> None:
    folder.mkdir(parents=True)
    for number in range(2):
        lines = texts[number * 150 : number * 150 + 150]
        paragraphs = ["\n".join(lines[first : first + 5]) for first in range(0, len(lines), 5)]
        path = folder / f"book{number + 1}.txt"
        path.write_text("\n\n".join(paragraphs) + "\n", encoding="utf-8")
