"""SQuAD reader: the same examples and errors as the original BERT code, and error locations."""

import gzip
import json
import random

import pytest

from bert_tf.base.errors import UserError
from bert_tf.tasks.question_answering.squad_reader import read_squad_examples, split_words
from tests.oracle import golden


def read_golden_examples():
    with gzip.open(golden("squad/examples.json.gz"), "rt") as file:
        return json.load(file)


FILES = [
    ("train-v1.1.json", True, False),
    ("train-v2.0.json", True, True),
    ("dev-v1.1.json", False, False),
    ("dev-v2.0.json", False, True),
]


@pytest.mark.parametrize(("name", "is_training", "negative"), FILES)
def test_examples_match_the_original(name, is_training, negative):
    key = f"{name} training={is_training} version_2_with_negative={negative}"
    expected = read_golden_examples()[key]["examples"]
    examples = read_squad_examples(str(golden(f"squad/{name}")), is_training, negative)
    assert len(examples) == len(expected) > 30
    names = ("qas_id", "question_text", "doc_tokens", "orig_answer_text", "start_position")
    names += ("end_position", "is_impossible")
    for example, reference in zip(examples, expected, strict=True):
        actual = {name: getattr(example, name) for name in names}
        assert actual == {name: reference[name] for name in names}


@pytest.mark.parametrize(
    ("name", "negative"), [("train-v1.1.json", False), ("train-v2.0.json", True)]
)
def test_training_order_matches_the_original(name, negative):
    examples = read_squad_examples(str(golden(f"squad/{name}")), True, negative)
    random.Random(12345).shuffle(examples)
    # The original's main() shuffles all training examples before it writes records.
    expected = read_golden_examples()[f"{name} order after the pre-shuffle of main"]
    assert [example.qas_id for example in examples] == expected


def edge_cases():
    return [
        case for case in json.loads(golden("squad/edge_cases.json").read_text()) if "json" in case
    ]


def test_files_rejected_by_the_original_are_rejected(tmp_path):
    path = tmp_path / "case.json"
    results = set()
    for case in edge_cases():
        path.write_text(json.dumps(case["json"]))
        arguments = (str(path), case["is_training"], case["version_2_with_negative"])
        # The original reads these files and fails when it predicts; bert_tf never does, see
        # test_decoding.py.
        fails_later = case.get("exception") == "AttributeError" or "tokens" in case["name"]
        results.add(case["result"])
        if case["result"] == "error" and not fails_later:
            reason = "has no|expected one answer"
            with pytest.raises(UserError, match=rf"case\.json.* ({reason})"):
                read_squad_examples(*arguments)
        elif case.get("num_examples") == 0:
            with pytest.raises(UserError, match=r"no usable questions$"):
                read_squad_examples(*arguments)
        else:
            assert len(read_squad_examples(*arguments)) == case.get("num_examples", 1)
    assert results == {"ok", "error"}


def write_squad(folder, *questions, context="The cat sat."):
    path = folder / "squad.json"
    paragraphs = [{"context": context, "qas": list(questions)}]
    path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}))
    return str(path)


def question(**changes):
    answers = [{"text": "cat", "answer_start": 4}]
    return {"id": "1", "question": "Who?", "answers": answers, **changes}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"data": [\n1,\n}', r"squad\.json:3: invalid JSON: .* at position 1"),
        ("[]", r'squad\.json: has no "data"\. The format of SQuAD is {'),
        ('{"id": 1}\n{"id": 2}\n', r'json:1: has no "data"\. The format of SQuAD is {'),
        (
            '{"data": [{"paragraphs": [{"context": 1}]}]}',
            r"paragraphs\[0\]: has an invalid \"context\"",
        ),
        ("[" * 100_000, "squad.json:1: invalid JSON"),
        ('{"data": []}', "no usable questions$"),
        (
            '{"data": [{"paragraphs": [{"context": "a", "qas": [{"id": "1"}]}]}]}',
            r'qas\[0\]: has no "question"',
        ),
    ],
)
def test_invalid_file_formats(tmp_path, content, message):
    (tmp_path / "squad.json").write_text(content)
    with pytest.raises(UserError, match=message):
        read_squad_examples(str(tmp_path / "squad.json"), False, False)


@pytest.mark.parametrize(
    ("changes", "splits", "message"),
    [
        ({"answers": [{"text": "cat"}]}, "t", r'qas\[1\]\.answers\[0\]: has no "answer_start"'),
        ({"answers": [{"text": "cat", "answer_start": "4"}]}, "t", '"4" is not of type int'),
        ({"id": None}, "p", 'invalid "id": null is not of type str or number'),
        ({}, "v", r'"is_impossible"\. .* --version_2_with_negative=true, questions'),
        (
            {"answers": [{"text": "cat", "answer_start": 12}]},
            "t",
            "the text has no answer 'cat' at answer_start=12",
        ),
        (
            {"answers": [{"text": "cat", "answer_start": 4}] * 2},
            "t",
            r"qas\[1\]: expected one answer, .* Received: 2",
        ),
        ({"answers": []}, "t", "or none to an impossible question .--version_2.* Received: 0"),
    ],
)
def test_errors_name_their_location(tmp_path, changes, splits, message):
    first = question(is_impossible=False) if splits == "v" else question()
    path = write_squad(tmp_path, first, question(**changes))
    with pytest.raises(UserError, match=message) as caught:
        read_squad_examples(path, splits != "p", splits == "v")
    assert str(caught.value.at).startswith(f"{path}: data[0].paragraphs[0].qas[1]")


def test_misaligned_answers_are_skipped_and_counted(tmp_path, caplog):
    misaligned_questions = [
        question(id=str(n), answers=[{"text": "dog", "answer_start": 4}]) for n in range(2, 10)
    ]
    path = write_squad(tmp_path, question(), *misaligned_questions)
    assert [e.qas_id for e in read_squad_examples(path, True, False)] == ["1"]
    assert "8 of 9 questions are skipped, because no answer is at answer_" in caplog.text
    assert "2, 3, 4, 5, 6 and 3 more" in caplog.text
    # For prediction, misaligned answers do not matter: no question is skipped.
    caplog.clear()
    assert len(read_squad_examples(path, False, False)) == 9
    message = "8 of 9 questions have no answer that is in the text: 2, 3, 4, 5, 6 and 3 more"
    assert message in caplog.text
    path = write_squad(
        tmp_path, *[question(id=str(n)) for n in range(9)], *misaligned_questions[:1]
    )
    caplog.clear()
    assert len(read_squad_examples(path, False, False)) == 10
    assert "no answer that" not in caplog.text


@pytest.mark.parametrize("answers", [None, "cat", [{"text": ["cat"], "answer_start": [4]}], [1]])
def test_prediction_ignores_malformed_answers(tmp_path, answers):
    path = write_squad(
        tmp_path, question(answers=answers), question(id=7.5, answers=[{"text": "x"}])
    )
    first, second = read_squad_examples(path, False, False)
    assert first.answers is None
    assert (second.qas_id, second.answers) == ("7.5", ("x",))


def test_whitespace_in_other_scripts():
    # Like the original, splits at ASCII white space and U+202F, but not at U+3000 or U+00A0.
    expected = ["\u5317\u4eac\u3000\u5e02", "\uff11\uff19\uff15\uff10\u5e74", "cafe\u0301\u00a0x"]
    text = f"{expected[0]} {expected[1]}\u202f{expected[2]}\n"
    paragraph = split_words(text)
    assert paragraph.words == expected
    word_indices = [paragraph.word_index_at[n] for n in (0, 2, 4, 5, 10, 11, -1)]
    assert word_indices == [0, 0, 0, 1, 1, 2, 2]
    assert split_words(" a").word_index_at[0] == -1
    assert len(paragraph.word_index_at) == len(text)


IMPOSSIBLE = {"is_impossible": True, "answers": [], "plausible_answers": [{"text": "cat"}]}
NO_TEXT = {"answers": [{"text": " ", "answer_start": 4}]}


EMPTY = [{"id": "a"}, {"id": "b", "question": " "}, {"id": "c", "question": ""}]
REPEATED = "has the id of an earlier question, which then does not count"


@pytest.mark.parametrize(
    ("changes", "is_training", "negative", "warning"),
    [
        ([{}, {}], False, True, f"1 of 2 questions {REPEATED}: 1"),
        (EMPTY, True, False, "2 of 3 questions are empty: b, c"),
        (EMPTY, False, False, "2 of 3 questions are empty: b, c"),
        ([NO_TEXT], True, True, "1 of 1 question has an answer without text: 1"),
        ([{}, {**IMPOSSIBLE, "id": "b"}], True, True, None),
        (
            [{}, {**IMPOSSIBLE, "id": "b"}, {"is_impossible": True, "id": "c"}],
            *(True, True, "1 of 3 questions is impossible, but has answers: c"),
        ),
    ],
)
def test_problems_of_questions_are_counted(
    tmp_path, caplog, changes, is_training, negative, warning
):
    questions = [question(**{"is_impossible": False, **x}) for x in changes]
    path = write_squad(tmp_path, *questions)
    examples = read_squad_examples(path, is_training, negative)
    assert len(examples) == len(changes)
    if is_training:
        assert [x.is_impossible for x in examples] == [x["is_impossible"] for x in questions]
    assert caplog.messages == ([f"{path}: {warning}"] if warning else [])


TEXT = "The bakery opened in 1990 in Bonn."
HF = {"id": "1", "context": TEXT, "question": "When?"} | {
    "answers": {"text": ["1990"], "answer_start": [21]}
}
MRQA = {
    "context": TEXT,
    "qas": [
        {
            "qid": "1",
            "question": "Where?",
            "answers": ["Bonn", "in Bonn"],
            "detected_answers": [{"text": "Bonn", "char_spans": [[29, 32], [0, 1]]}],
        }
    ],
}
UNANSWERED = HF | {"id": "2", "answers": {"text": [], "answer_start": []}}


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize(
    ("name", "content", "answer"),
    [
        ("train.jsonl", lines(HF, HF | {"id": "2"}), ("1990", 4, 4)),
        ("train.json", lines(HF), ("1990", 4, 4)),
        ("train.txt", json.dumps([HF], indent=2), ("1990", 4, 4)),
        ("train.json", json.dumps({"data": [HF]}), ("1990", 4, 4)),
        ("train.jsonl.gz", lines({"header": {"dataset": "x"}}, MRQA), ("Bonn", 6, 6)),
        ("train.jsonl", lines({"title": "a", "paragraphs": [MRQA]}), ("Bonn", 6, 6)),
    ],
)
def test_json_lines(tmp_path, name, content, answer):
    raw = content.encode()
    (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    example, *_ = read_squad_examples(str(tmp_path / name), True, False)
    assert example.qas_id == "1"
    assert example.doc_tokens == TEXT.split()
    assert (example.orig_answer_text, example.start_position, example.end_position) == answer
    example, *_ = read_squad_examples(str(tmp_path / name), False, False)
    assert example.answers[0] == answer[0]


def test_json_lines_without_answers(tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_text(lines(HF, UNANSWERED))
    examples = read_squad_examples(str(path), True, True)
    assert [example.is_impossible for example in examples] == [False, True]
    assert examples[0].doc_tokens is examples[1].doc_tokens
    with pytest.raises(UserError, match=r"jsonl:2: expected one answer, .* Received: 0"):
        read_squad_examples(str(path), True, False)
    path.write_text(lines(HF, {"id": "2", "question": "Why?"}))
    with pytest.raises(UserError, match=r'jsonl:2: has no "context"'):
        read_squad_examples(str(path), False, False)
