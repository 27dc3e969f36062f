"""Multiple choice end to end, on a tiny model."""

import csv
import importlib.util
import json
import random
import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoint
from bert_tf.api.predictor import Predictor
from bert_tf.base.errors import UserError
from bert_tf.checkpoints.formats import convert, find_source
from bert_tf.data.packing import CUT_TOKENS
from bert_tf.finetuning.run_checks import give_schema
from bert_tf.options import ConversionOptions, MultipleChoiceOptions
from bert_tf.tasks import multiple_choice
from bert_tf.tasks.multiple_choice.model import BertMultipleChoice
from bert_tf.tasks.multiple_choice.task import MultipleChoice, Question, read_questions
from bert_tf.tokenization import FullTokenizer
from tests.conftest import WORDS
from tests.finetuning.helpers import write_json_lines

COLUMNS = ["sent1", "sent2", "ending0", "ending1", "ending2", "ending3", "label"]


def random_questions(count, seed):
    """Yields questions whose correct ending repeats the last word of the context.

    Each is a list: context without its last word, last word, question, four endings, label.
    """
    rng = random.Random(seed)
    for _ in range(count):
        words = rng.sample(["good", "bad", "slow", "fast"], 4)
        label = rng.randrange(4)
        yield ["the film was", words[label], "it was", *words, label]


def write_csv(path, questions):
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for context, last_word, question, *endings_and_label in questions:
            writer.writerow([f"{context} {last_word}", question, *endings_and_label])


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("swag")
    for split, count in (("train", 160), ("val", 21), ("test", 5)):
        write_csv(folder / f"{split}.csv", random_questions(count, seed=count))
    return folder


def options(tiny, folder, data, **flags):
    defaults = {"data_dir": str(data), "init_checkpoint": tiny.checkpoint, "train_batch_size": 8}
    defaults |= {"output_dir": str(folder / "out"), "learning_rate": 1e-2, "num_train_epochs": 4.0}
    return MultipleChoiceOptions(**{**tiny.flags, **defaults, **flags})


@pytest.fixture(scope="module")
def trained_model(tiny, data, tmp_path_factory):
    """The results and the output folder of a run that trains, evaluates, predicts and exports."""
    folder = tmp_path_factory.mktemp("trained_model")
    actions = {"do_train": True, "do_eval": True, "do_predict": True, "do_export": True}
    run_options = options(tiny, folder, data, **actions, eval_every="1epoch")
    return multiple_choice.run(run_options), folder / "out"


def test_metrics_and_files(trained_model):
    results, out = trained_model
    assert set(results.metrics) == {"eval_accuracy", "loss", "global_step"}
    # Chance is 0.25.
    assert results.metrics["eval_accuracy"] > 0.6
    assert (out / "labels.txt").read_text() == "0\n1\n2\n3\n"
    predictions = [json.loads(line) for line in (out / "predictions.jsonl").open()]
    assert len(predictions) == 5
    for prediction in predictions:
        assert prediction["choice"] == int(np.argmax(prediction["probabilities"]))
        assert sum(prediction["probabilities"]) == pytest.approx(1, abs=1e-5)
    assert json.loads((out / "run.json").read_text())["script"] == "run_multiple_choice"


def test_predictor_returns_what_predictions_jsonl_contains(trained_model, data):
    _, out = trained_model
    predictor = Predictor.from_output_dir(out)
    with (data / "test.csv").open() as file:
        rows = [*csv.DictReader(file)]
    inputs = [(x["sent1"], *(f"{x['sent2']} {x[f'ending{n}']}" for n in range(4))) for x in rows]
    predicted = predictor(inputs)
    lines = [json.loads(line) for line in (out / "predictions.jsonl").open()]
    for prediction, line in zip(predicted, lines, strict=True):
        assert prediction.choice == line["choice"]
        assert prediction.probabilities == pytest.approx(line["probabilities"], abs=1e-5)
    assert predictor([]) == []
    for invalid_input in ("a", ("a", "b"), ("a", 1, 2, 3, 4), ("a", "b", "c", "d", "e", "f")):
        with pytest.raises(
            UserError, match="Input 0: expected a tuple of a context and 2 to 4 end"
        ):
            predictor([invalid_input])


def test_predictor_does_not_read_the_data(trained_model, tmp_path):
    """Predicts from an output folder although the data folder of its run has been deleted."""
    _, out = trained_model
    shutil.copytree(out, tmp_path / "out", ignore=shutil.ignore_patterns("export"))
    path = tmp_path / "out" / "run.json"
    metadata = json.loads(path.read_text())
    metadata["flags"]["data_dir"] = str(tmp_path / "deleted")
    path.write_text(json.dumps(metadata))
    question = ("a film", "the plot", "it was good", "a b", "slow")
    expected = Predictor.from_output_dir(out)(question)
    assert Predictor.from_output_dir(tmp_path / "out")(question) == expected


def test_exported_model_equals_the_best_checkpoint(trained_model, tiny):
    _, out = trained_model
    signature = tf.saved_model.load(str(out / "export" / "1")).signatures["serving_default"]
    rng = np.random.default_rng(0)
    ids = rng.integers(5, 15, (2, 4, 9), dtype=np.int32)
    inputs = {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": ids % 2}
    served = signature(**{name: tf.constant(x) for name, x in inputs.items()})
    model = BertMultipleChoice(tiny.config)
    checkpoint.restore(model, str(out / "best" / "model.ckpt"))
    expected = model(inputs)["probabilities"]
    np.testing.assert_allclose(served["probabilities"], expected, atol=1e-6)


def test_later_evaluation_equals_evaluation_after_training(trained_model, tiny, data, tmp_path):
    results, out = trained_model
    eval_options = options(tiny, tmp_path, data, do_eval=True, init_checkpoint=str(out / "best"))
    metrics = multiple_choice.run(eval_options).metrics
    assert metrics["eval_accuracy"] == results.metrics["eval_accuracy"]
    assert metrics["loss"] == pytest.approx(results.metrics["loss"], abs=1e-6)


def test_endings_are_scored_independently(tiny):
    """Each ending's logit is the output of the head for its row alone."""
    model = BertMultipleChoice(tiny.config)
    ids = np.random.default_rng(1).integers(5, 15, (3, 2, 7), dtype=np.int32)
    logits = model({"input_ids": ids})["logits"]
    pooled = model.bert({"input_ids": ids.reshape(6, 7)})["pooled_output"]
    np.testing.assert_allclose(logits, np.reshape(model.head(pooled), (3, 2)), atol=1e-6)


def test_only_long_inputs_count_as_truncated(tiny, data, tmp_path):
    tokenizer = FullTokenizer(tiny.flags["vocab_file"])
    run_options = options(tiny, tmp_path, data, do_train=True, max_seq_length=8)
    questions = [Question("the film", ("", *["bad"] * 3), 0)]
    questions.append(Question("the film the film", ("bad bad", *["bad"] * 3), 0))
    task = give_schema(MultipleChoice(run_options, tiny.config, tokenizer))
    rows = task.featurize(questions, "train")
    assert rows[CUT_TOKENS].tolist() == [0, 1]


def test_texts_do_not_depend_on_the_order_of_the_endings(tiny, data, tmp_path):
    tokenizer = FullTokenizer(tiny.flags["vocab_file"])
    task = MultipleChoice(options(tiny, tmp_path, data, do_train=True), tiny.config, tokenizer)
    first = Question("the film", ("was good", "was bad"), 0)
    second = Question("the film", ("was bad", "was good"), 1)
    ((_, texts), (_, same_texts)) = task.identity([first, second])
    assert texts == same_texts


def test_keras_file_round_trip(tiny, tmp_path):
    model = BertMultipleChoice(tiny.config)
    ids = np.ones((1, 2, 5), "int32")
    model.save(tmp_path / "m.keras")
    loaded = keras.saving.load_model(tmp_path / "m.keras")
    logits, expected = (x({"input_ids": ids})["logits"] for x in (loaded, model))
    np.testing.assert_array_equal(logits, expected)


def test_column_mapping(tmp_path):
    csv_with_header = "q,wrong,right,answer\nwhat,a,b,right\n"
    (tmp_path / "train.csv").write_text(csv_with_header)
    flags = {"context_column": "q", "question_column": "", "label_column": "answer"}
    flags |= {"data_dir": str(tmp_path), "ending_columns": "wrong,right"}
    questions = read_questions(MultipleChoiceOptions(**flags), "train", None)
    assert questions == [Question("what", ("a", "b"), 1)]
    (tmp_path / "train.csv").unlink()
    row = {"q": "what", "choices": ["a", "b", "c"], "answer": 2}
    write_json_lines(tmp_path / "train.jsonl", [row])
    flags |= {"ending_columns": "choices"}
    questions = read_questions(MultipleChoiceOptions(**flags), "train", None)
    assert questions == [Question("what", ("a", "b", "c"), 2)]


HEADER = ",".join(COLUMNS)
IN_E = {"ending_columns": "e"}
RACE = '{"sent1": "a", "sent2": "b?", "e": [["x", "y"], ["z", "w"]], "label": "A"}'


@pytest.mark.parametrize(
    ("content", "flags", "message"),
    [
        ("sent1,sent2,ending0,ending1\na,b,c,d\n", {}, "no column 'ending2' .*'ending1'"),
        ("sent1,sent2\na,b\n", {}, "no column 'ending0' .--ending_columns., only 'sent1'"),
        (f"{HEADER}\na,b,c,d,e,f,4\n", {}, ":2: the label must be one of 0, 1, 2.* Received: '4'"),
        (f"{HEADER},ending1\n", {}, "train.csv:1: columns 4 and 8 are both called 'ending1"),
        (f"{HEADER}\n", {}, "contains no question"),
        (RACE, IN_E, "train.csv:1: the ending must be a string"),
        ('{"sent1": "", "sent2": "", "e": ["a", null], "label": 0}', IN_E, "Received: 'null'"),
        ('{"sent1": "", "sent2": "", "e": "a", "label": 0}', IN_E, "two or more endings"),
        (
            '{"sent1": "a", "sent2": "", "e": ["b", "c", "d"], "label": 0}',
            IN_E,
            ":1: expected at most 2 endings, as the model .* Received: 3",
        ),
        (f"{HEADER}\na,b,c,d,e,f,0\n", {"ending_columns": ""}, ":2: a question needs two or more"),
    ],
)
def test_invalid_files_and_flags(tmp_path, content, flags, message):
    (tmp_path / "train.csv").write_text(content)
    options = MultipleChoiceOptions(data_dir=str(tmp_path), **flags)
    with pytest.raises(UserError, match=message):
        read_questions(options, "train", 2 if flags == IN_E else None)


def test_missing_file_lists_the_folder(tiny, tmp_path):
    (tmp_path / "a.csv").write_text("")
    (tmp_path / "b.csv").write_text("")
    message = r"no train file: pass --train_file, .* has: a.csv, b.csv"
    with pytest.raises(UserError, match=message):
        multiple_choice.run(options(tiny, tmp_path, tmp_path, do_train=True))


def test_another_folder_may_have_another_number_of_endings(trained_model, tiny, tmp_path):
    _, out = trained_model
    question = {"sent1": "a", "sent2": "", "e": ["good", "slow"], "label": 0}
    write_json_lines(tmp_path / "val.jsonl", [question] * 3)
    flags = {"ending_columns": "e", "init_checkpoint": str(out), "do_eval": True}
    results = multiple_choice.run(options(tiny, tmp_path, tmp_path, **flags))
    assert results.metrics["eval_accuracy"] in (0, 1)


TRANSFORMERS_CODE = """
import sys, numpy as np, torch, transformers
model = transformers.BertForMultipleChoice.from_pretrained(sys.argv[1]).eval()
inputs = {key: torch.tensor(value) for key, value in np.load(sys.argv[2]).items()}
with torch.no_grad():
    np.save(sys.argv[3], model(**inputs).logits.numpy())
"""


@pytest.mark.slow
def test_logits_match_transformers(trained_model, tiny, tmp_path):
    """Runs PyTorch in a separate process, because it may fail to load next to TensorFlow."""
    if not importlib.util.find_spec("transformers"):
        pytest.skip("needs transformers and PyTorch: install the `benchmark` extra")
    _, out = trained_model
    request = ConversionOptions(output=str(tmp_path / "hf"), to="hugging_face")
    convert(find_source(str(out / "best")), request)
    rng = np.random.default_rng(3)
    ids = rng.integers(5, len(WORDS) + 5, (3, 4, 11), dtype=np.int64)
    mask = (np.arange(11) < rng.integers(3, 12, (3, 4, 1))).astype(np.int64)
    inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": ids % 2}
    np.savez(tmp_path / "inputs.npz", **inputs)
    paths = [str(tmp_path / name) for name in ("hf", "inputs.npz", "logits.npy")]
    command = [sys.executable, "-c", TRANSFORMERS_CODE, *paths]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    model = BertMultipleChoice(tiny.config)
    checkpoint.restore(model, str(out / "best" / "model.ckpt"))
    logits = model({"input_ids": ids, "input_mask": mask, "segment_ids": ids % 2})["logits"]
    np.testing.assert_allclose(logits, np.load(paths[2]), atol=1e-4, rtol=0)


def labeled_questions(label_of, count=20, endings=("a", "b", "c", "d")):
    return [["the film", "was", "it was", *endings, label_of(index)] for index in range(count)]


def find_problems(tiny, tmp_path, split):
    flags = {**tiny.flags, "data_dir": str(tmp_path), "output_dir": str(tmp_path / "out")}
    run_options = MultipleChoiceOptions(**flags, **{f"do_{split}": True})
    task = MultipleChoice(run_options, tiny.config, FullTokenizer(tiny.flags["vocab_file"]))
    task.schema = task.infer_schema(split)
    problems = task.check(split, task.read(split), ())
    return [problem for problem in problems if "[UNK]" not in problem and "distinct" not in problem]


def test_labels_of_columns_with_numbers_as_names(tmp_path):
    header = ["sent1", "sent2", *"123", "label"]
    options = MultipleChoiceOptions(data_dir=str(tmp_path), ending_columns="1,2,3")
    rows = [header, ["the film", "was", "a", "b", "c", "3"]]
    (tmp_path / "train.csv").write_text("\n".join(map(",".join, rows)))
    (question,) = read_questions(options, "train", None)
    assert question.label == 2
    rows[1][-1] = "0"
    (tmp_path / "train.csv").write_text("\n".join(map(",".join, rows)))
    with pytest.raises(UserError, match=r"the label must be one of 1, 2, 3\. Received: '0'"):
        read_questions(options, "train", None)


def test_unusual_questions_warn(tiny, tmp_path):
    write_csv(tmp_path / "val.csv", labeled_questions(lambda n: 2))
    message = f"{tmp_path}/val.csv: in all 20 rows, the label is '2'"
    assert find_problems(tiny, tmp_path, "eval") == [message]
    with_empty = labeled_questions(lambda n: 0, count=3, endings=("a", "", "b", "c"))
    write_csv(tmp_path / "train.csv", with_empty + labeled_questions(lambda n: 0, count=2))
    message = "3 of 5 questions have an empty ending"
    assert find_problems(tiny, tmp_path, "train") == [f"{tmp_path}/train.csv: {message}"]
    equal = labeled_questions(lambda n: n % 4, count=10, endings=("a", "a", "b", "c"))
    different = labeled_questions(lambda n: n % 4, count=10, endings=("a", "b", "c", "d"))
    write_csv(tmp_path / "train.csv", equal + different)
    write_csv(tmp_path / "val.csv", equal * 2 + different)
    assert find_problems(tiny, tmp_path, "train") == []
    message = "two endings are equal in 20 of 30 rows, such as 'it was a'"
    assert find_problems(tiny, tmp_path, "eval") == [f"{tmp_path}/val.csv: {message}"]


QUESTIONS = [
    {"stem": "the film", "choices": ["good", "bad", "slow"], "answer": 1},
    {"stem": "a plot", "choices": ["good", "bad", "slow", "fast", "film"], "answer": 4},
    {"stem": "the plot", "choices": ["fast", "good"], "answer": 0},
]
EXPECTED = [Question(q["stem"], tuple(q["choices"]), q["answer"]) for q in QUESTIONS]
NESTED_FLAGS = {"context_column": "question.stem", "question_column": "", "label_column": "key"}


def write_nested(path, choices_of, answer_of=lambda q: "ABCDE"[q["answer"]]):
    rows = [
        {"question": {"stem": q["stem"], "choices": choices_of(q["choices"])}, "key": answer_of(q)}
        for q in QUESTIONS
    ]
    write_json_lines(path, rows)


def labeled_choices(texts, labels="ABCDE"):
    return [{"label": label, "text": text} for label, text in zip(labels, texts, strict=False)]


@pytest.mark.parametrize(
    ("choices_of", "answers", "column"),
    [
        (labeled_choices, "ABCDE", "question.choices"),
        (labeled_choices, "ABCDE", "question.choices.text"),
        # As in some questions of ARC, labels count from 1.
        (lambda t: labeled_choices(t, "12345"), "12345", "question.choices"),
        (lambda t: {"text": t, "label": [*"12345"][: len(t)]}, "12345", "question.choices.text"),
        (lambda t: dict(zip("ABCDE", t, strict=False)), "ABCDE", "question.choices"),
        (lambda t: t, "abcde", "question.choices"),
        (lambda t: t, range(5), "question.choices"),
    ],
)
def test_nested_choices(tmp_path, run_log, choices_of, answers, column):
    write_nested(tmp_path / "train.jsonl", choices_of, lambda q: answers[q["answer"]])
    flags = {**NESTED_FLAGS, "data_dir": str(tmp_path), "ending_columns": column}
    assert read_questions(MultipleChoiceOptions(**flags), "train", None) == EXPECTED


@pytest.mark.parametrize(
    ("choices_of", "answer", "message"),
    [
        (labeled_choices, "F", "the label must be one of 0, 1, 2, A, B, C. Received: 'F'"),
        (lambda t: t, 3, "must be one of 0, 1, 2, A, B, C. Received: .3."),
        (lambda t: labeled_choices(t, "AAAAA"), "A", "not every ending has a label of its own"),
        (lambda t: [{"label": "A", "x": "b"}] * 2, "A", "the ending must be a string"),
    ],
)
def test_invalid_nested_choices(tmp_path, choices_of, answer, message):
    write_nested(tmp_path / "train.jsonl", choices_of, lambda q: answer)
    flags = {**NESTED_FLAGS, "data_dir": str(tmp_path), "ending_columns": "question.choices"}
    with pytest.raises(UserError, match=rf"train\.jsonl:1: .*{message}"):
        read_questions(MultipleChoiceOptions(**flags), "train", None)


def test_columns_of_one_split(tmp_path):
    (tmp_path / "train.csv").write_text("q,a,b,c,key\nthe film,good,bad,,B\n")
    (tmp_path / "val.csv").write_text("stem,x,y,key\nthe plot,good,bad,1\n")
    flags = {"context_column": "q,eval:stem", "ending_columns": "a,b,c,eval:x,y"}
    flags |= {"question_column": "", "label_column": "key", "data_dir": str(tmp_path)}
    run_options = MultipleChoiceOptions(**flags)
    assert read_questions(run_options, "train", None) == [Question("the film", ("good", "bad"), 1)]
    assert read_questions(run_options, "eval", None) == [Question("the plot", ("good", "bad"), 1)]
    run_options = MultipleChoiceOptions(**flags | {"context_column": "q"})
    with pytest.raises(UserError, match="only this file differs, add ,eval:NAME"):
        read_questions(run_options, "eval", None)
    run_options = MultipleChoiceOptions(**flags | {"question_column": "sent2"})
    with pytest.raises(UserError, match="no column 'sent2'"):
        read_questions(run_options, "train", None)


def test_missing_endings_have_no_probability(tiny, tmp_path, run_log):
    """Trains on questions with 2 to 5 endings; predictions do not depend on the padding."""
    write_nested(tmp_path / "train.jsonl", labeled_choices)
    write_nested(tmp_path / "test.jsonl", labeled_choices)
    flags = {**NESTED_FLAGS, "ending_columns": "question.choices", "num_train_epochs": 2.0}
    flags |= {"do_train": True, "do_predict": True, "do_export": True, "train_batch_size": 3}
    multiple_choice.run(options(tiny, tmp_path, tmp_path, **flags))
    assert any("3 questions with 2 to 5 endings" in message for message in run_log.messages)
    out = tmp_path / "out"
    predictions = [json.loads(line) for line in (out / "predictions.jsonl").open()]
    assert [len(prediction["probabilities"]) for prediction in predictions] == [3, 5, 2]
    assert [sum(p["probabilities"]) for p in predictions] == pytest.approx([1, 1, 1], abs=1e-6)
    predictor = Predictor.from_output_dir(out)
    model = BertMultipleChoice(tiny.config)
    checkpoint.restore(model, str(out))
    tokenizer = FullTokenizer(tiny.flags["vocab_file"])
    signature = tf.saved_model.load(str(out / "export" / "1")).signatures["serving_default"]
    for question, line in zip(EXPECTED, predictions, strict=True):
        (predicted,) = predictor([(question.context, *question.endings)])
        assert predicted.probabilities == pytest.approx(line["probabilities"], abs=1e-5)
        rows = [["[CLS]", *question.context.split(), "[SEP]", e, "[SEP]"] for e in question.endings]
        ids = np.array([list(map(tokenizer.vocab.get, row)) for row in rows], np.int32)[None]
        segments = np.broadcast_to(np.arange(len(rows[0])) >= 4, ids.shape).astype(np.int32)
        inputs = {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": segments}
        unpadded = np.array(model(inputs)["probabilities"])[0]
        np.testing.assert_allclose(line["probabilities"], unpadded, atol=1e-5)
        padding = [(0, 0), (0, 5 - len(rows)), (0, 0)]
        padded = {name: tf.constant(np.pad(x, padding)) for name, x in inputs.items()}
        exported = signature(**padded)["probabilities"].numpy()[0]
        np.testing.assert_allclose(exported[: len(rows)], unpadded, atol=1e-5)
        assert not exported[len(rows) :].any()


def test_different_number_of_endings_is_rejected(trained_model, tiny, tmp_path):
    """Evaluates a model of four endings on a question with five."""
    _, out = trained_model
    question = {"sent1": "a", "sent2": "", "e": ["b", "c", "d", "e", "f"], "label": 0}
    write_json_lines(tmp_path / "val.jsonl", [question])
    flags = {"data_dir": str(tmp_path), "ending_columns": "e", "output_dir": str(out)}
    with pytest.raises(UserError, match=r"val.jsonl:1: .* at most 4 endings.* Received: 5"):
        multiple_choice.run(options(tiny, tmp_path, tmp_path, do_eval=True, **flags))
