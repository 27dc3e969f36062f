"""Reading SQuAD: the original's examples and errors, and the places of errors in files."""

import gzip
import json
import random

import pytest

from bert_tf.errors import UserError
from bert_tf.tasks.question_answering.squad_reader import Paragraph, read_squad_examples
from tests.oracle import golden


def stored():
    with gzip.open(golden("squad/examples.json.gz"), "rt") as file:
        return json.load(file)


READ = [
    ("train-v1.1.json", True, False),
    ("train-v2.0.json", True, True),
    ("dev-v1.1.json", False, False),
    ("dev-v2.0.json", False, True),
]


@pytest.mark.parametrize(("name", "is_training", "negative"), READ)
def test_examples_are_those_of_the_original(name, is_training, negative):
    key = f"{name} training={is_training} version_2_with_negative={negative}"
    expected = stored()[key]["examples"]
    found = read_squad_examples(str(golden(f"squad/{name}")), is_training, negative)
    assert len(found) == len(expected) > 30
    for ours, theirs in zip(found, expected, strict=True):
        actual = {
            "qas_id": ours.qas_id,
            "question_text": ours.question_text,
            "doc_tokens": ours.doc_tokens,
            "orig_answer_text": ours.orig_answer_text,
            "start_position": ours.start_position,
            "end_position": ours.end_position,
            "is_impossible": ours.is_impossible,
        }
        assert actual == {name: theirs[name] for name in actual}


@pytest.mark.parametrize(
    ("name", "negative"), [("train-v1.1.json", False), ("train-v2.0.json", True)]
)
def test_order_of_training_is_that_of_the_original(name, negative):
    found = read_squad_examples(str(golden(f"squad/{name}")), True, negative)
    random.Random(12345).shuffle(found)
    assert [e.qas_id for e in found] == stored()[f"{name} order after the pre-shuffle of main"]


def edge_cases():
    return [
        case for case in json.loads(golden("squad/edge_cases.json").read_text()) if "json" in case
    ]


def test_errors_of_the_original_are_errors(tmp_path):
    path = tmp_path / "case.json"
    seen = set()
    for case in edge_cases():
        path.write_text(json.dumps(case["json"]))
        arguments = (str(path), case["is_training"], case["version_2_with_negative"])
        # These fail later in the original, and not at all here: see the tests of decoding.
        later = case.get("exception") in ("AttributeError",) or "tokens" in case["name"]
        seen.add(case["result"])
        if case["result"] == "error" and not later:
            reason = "has no|need exactly one|the text has 12 characters"
            with pytest.raises(UserError, match=rf"case\.json.* ({reason})"):
                read_squad_examples(*arguments)
        elif case.get("num_examples") == 0:
            with pytest.raises(UserError, match=r"has no usable questions: skipped 1 whose answer"):
                read_squad_examples(*arguments)
        else:
            assert len(read_squad_examples(*arguments)) == case.get("num_examples", 1)
    assert seen == {"ok", "error"}


def written(folder, *questions, context="The cat sat."):
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
        (
            '{"data": [\n1,\n}',
            r"squad\.json:3: not JSON .*at position 1\): expected a file in SQuAD",
        ),
        ("[]", r'squad\.json has no "data"'),
        ('{"data": [{}]}', r'data\[0\] has no "paragraphs"'),
        (
            '{"data": [{"paragraphs": [{"context": 1}]}]}',
            r"paragraphs\[0\] has an invalid \"context\"",
        ),
        ("[" * 100_000, "cannot be read as JSON"),
        ("9" * 5000, "cannot be read as JSON"),
        ('{"data": []}', "has no usable questions$"),
        (
            '{"data": [{"paragraphs": [{"context": "a", "qas": [{"id": "1"}]}]}]}',
            r'qas\[0\] has no "question"',
        ),
    ],
)
def test_a_file_of_another_format(tmp_path, content, message):
    (tmp_path / "squad.json").write_text(content)
    with pytest.raises(UserError, match=message):
        read_squad_examples(str(tmp_path / "squad.json"), False, False)


def test_errors_in_answers_name_their_place(tmp_path):
    bad = question(answers=[{"text": "cat"}])
    with pytest.raises(UserError, match=r'qas\[1\]\.answers\[0\] has no "answer_start"'):
        read_squad_examples(written(tmp_path, question(), bad), True, False)
    bad = question(answers=[{"text": "cat", "answer_start": "4"}])
    with pytest.raises(UserError, match=r"has an invalid \"answer_start\": '4'"):
        read_squad_examples(written(tmp_path, bad), True, False)
    with pytest.raises(UserError, match=r"omit --version_2_with_negative for SQuAD 1.1 files"):
        read_squad_examples(written(tmp_path, question()), True, True)
    late = question(answers=[{"text": "cat", "answer_start": 12}])
    with pytest.raises(UserError, match="the answer 'cat' begins at 12, but the text has 12 char"):
        read_squad_examples(written(tmp_path, late), True, False)
    several = question(answers=[{"text": "cat", "answer_start": 4}] * 2)
    with pytest.raises(UserError, match=r"has 2 answers: .* Evaluation data may have several"):
        read_squad_examples(written(tmp_path, several), True, False)
    none = question(answers=[])
    with pytest.raises(UserError, match=r"has 0 answers: .* pass --version_2_with_negative=true"):
        read_squad_examples(written(tmp_path, none), True, False)


def test_answers_elsewhere_are_left_out_and_counted(tmp_path, caplog):
    wrong = [
        question(id=str(n), answers=[{"text": "dog", "answer_start": 4}]) for n in range(2, 10)
    ]
    path = written(tmp_path, question(), *wrong)
    with caplog.at_level("DEBUG"):
        assert [e.qas_id for e in read_squad_examples(path, True, False)] == ["1"]
    assert "skipped 8 of 9 questions" in caplog.text
    assert "2, 3, 4, 5, 6 and 3 more" in caplog.text
    assert "Skipped: 2, 3, 4, 5, 6, 7, 8, 9" in caplog.text
    # For predictions they are like any other.
    assert len(read_squad_examples(path, False, False)) == 9


@pytest.mark.parametrize("answers", [None, "cat", [{"text": ["cat"], "answer_start": [4]}], [1]])
def test_answers_of_any_form_are_ignored_in_prediction(tmp_path, answers):
    path = written(tmp_path, question(answers=answers), question(id=7.5, answers=[{"text": "x"}]))
    first, second = read_squad_examples(path, False, False)
    assert first.answers is None
    assert (second.qas_id, second.answers) == ("7.5", ("x",))


def test_warning_of_repeated_ids(tmp_path, caplog):
    path = written(tmp_path, question(), question(), question(id="2"))
    assert len(read_squad_examples(path, False, False)) == 3
    assert "1 ids belong to several questions" in caplog.text


def test_words_of_other_writings():
    text = "\u5317\u4eac\u3000\u5e02 \uff11\uff19\uff15\uff10\u5e74\u202fcafe\u0301\u00a0x\n"
    paragraph = Paragraph.of(text)
    expected = ["\u5317\u4eac\u3000\u5e02", "\uff11\uff19\uff15\uff10\u5e74", "cafe\u0301\u00a0x"]
    assert paragraph.words == expected
    assert [paragraph.word_at(n) for n in (0, 2, 4, 5, 10, 11, -1)] == [0, 0, 0, 1, 1, 2, 2]
    assert Paragraph.of(" a").word_at(0) == -1
    with pytest.raises(IndexError):
        paragraph.word_at(len(text))


def write_questions(folder, *questions):
    texts = {"context": "the film", "qas": list(questions)}
    (folder / "train.json").write_text(json.dumps({"data": [{"paragraphs": [texts]}]}))
    return str(folder / "train.json")


def asked(qas_id, text="What?", **more):
    answers = [{"text": "film", "answer_start": 4}]
    return {"id": qas_id, "question": text, "answers": answers, "is_impossible": False, **more}


@pytest.mark.parametrize("is_training", [True, False])
def test_empty_questions(tmp_path, caplog, is_training):
    path = write_questions(tmp_path, asked("a"), asked("b", " "), asked("c", ""))
    assert len(read_squad_examples(path, is_training, False)) == 3
    expected = f'{path}: 2 of 3 questions are empty (check "question"), the first is b'
    assert caplog.messages == [expected]
    with pytest.raises(UserError, match=r'all questions are empty\. Check "question"'):
        read_squad_examples(write_questions(tmp_path, asked("b", "")), is_training, False)


def test_impossible_questions_with_answers(tmp_path, caplog):
    right = asked("b", is_impossible=True, answers=[], plausible_answers=[{"text": "film"}])
    path = write_questions(tmp_path, asked("a"), right, asked("c", is_impossible=True))
    assert [each.is_impossible for each in read_squad_examples(path, True, True)] == [
        *(False, True, True)
    ]
    problem = '1 of 3 questions are impossible, but have answers (check "is_impossible")'
    assert caplog.messages == [f"{path}: {problem}, the first is c"]
    caplog.clear()
    read_squad_examples(write_questions(tmp_path, asked("a"), right), True, True)
    assert not caplog.messages
