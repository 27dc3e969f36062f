"""The contract of `Task`, which every fine-tuning task must keep: see `bert_tf.finetuning.task`."""

import builtins
import dataclasses
import itertools
import json
from types import SimpleNamespace

import numpy as np
import pytest

from bert_tf.base import files
from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.data.packing import CUT_TOKENS
from bert_tf.finetuning import run_metadata
from bert_tf.finetuning.model_files import read_model_files
from bert_tf.finetuning.run_checks import give_schema
from bert_tf.finetuning.task import NO_SCHEMA, Traits, Written
from bert_tf.inference.row_batches import checked
from bert_tf.options import (
    ClassifierOptions,
    EmbeddingsOptions,
    MultipleChoiceOptions,
    NerOptions,
    RankingOptions,
    SquadOptions,
    registry,
)
from tests.finetuning.helpers import write_json_lines
from tests.finetuning.own_task import RetrievalOptions
from tests.own_tasks_page import page

TEXTS = ["the good film", "a bad plot", "not fast", "the story was slow and good", "it was bad"]
SPLITS = {"train": "train", "eval": "dev", "predict": "test"}


def write_rows(folder, rows):
    for name in SPLITS.values():
        write_json_lines(folder / f"{name}.jsonl", rows)


def table_options(flags, folder, labels, **more):
    rows = [{"text": x, "other": x[::-1], "y": y} for x, y in zip(TEXTS, labels, strict=True)]
    write_rows(folder, rows)
    columns = {"task_name": "tsv", "text_column": "text", "label_column": "y", **more}
    return ClassifierOptions(**flags, **columns, data_dir=str(folder))


def classification(flags, folder):
    return table_options(flags, folder, ["b", "a", "b", "c", "a"])


def windows(flags, folder):
    pairs = {"text_pair_column": "other", "class_weights": "balanced", "long_text": "windows"}
    flags = {**flags, "max_seq_length": 12}
    return table_options(flags, folder, ["b", "a", "b", "c", "a"], **pairs)


def multilabel(flags, folder):
    return table_options(flags, folder, [["b"], [], ["a", "b"], ["c"], ["a"]])


def regression(flags, folder):
    return table_options(flags, folder, [0.5, 1.0, 2.25, 3.0, 4.0])


def glue(flags, folder):
    for split in ("train", "dev"):
        lines = (f"{row}\t{row % 2}\ta\t{text}\n" for row, text in enumerate(TEXTS))
        (folder / f"{split}.tsv").write_text("".join(lines))
    lines = (f"{row}\t{text}\n" for row, text in enumerate(TEXTS))
    (folder / "test.tsv").write_text("index\tsentence\n" + "".join(lines))
    return ClassifierOptions(**flags, task_name="cola", data_dir=str(folder))


MODULE = """
from bert_tf.data.features import InputExample

class Films:
    def get_train_examples(self, data_dir):
        return [InputExample(str(n), text, "it was", "ab"[n % 2]) for n, text in enumerate({})]

    get_dev_examples = get_test_examples = get_train_examples

    def get_labels(self):
        return ["a", "b"]
"""


def task_module(flags, folder):
    (folder / "films.py").write_text(MODULE.format(TEXTS))
    return ClassifierOptions(**flags, task_module=str(folder / "films.py"))


def multiple_choice(flags, folder):
    rows = [
        {"sent1": text, "sent2": "it", **{f"ending{n}": TEXTS[n] for n in range(4)}, "label": n % 4}
        for n, text in enumerate(TEXTS)
    ]
    write_rows(folder, rows)
    return MultipleChoiceOptions(**flags, data_dir=str(folder))


def ner(flags, folder, **more):
    sentences = ("".join(f"{word} B-A\n" for word in text.split()) for text in TEXTS)
    content = "-DOCSTART- O\n\n" + "\n".join(f"{text}it O\n" for text in sentences)
    for name in SPLITS.values():
        (folder / f"{name}.txt").write_text(content)
    return NerOptions(**{**flags, "max_seq_length": 8}, **more, data_dir=str(folder))


def ner_in_documents(flags, folder):
    return ner(flags, folder, doc_context=True)


def squad(flags, folder):
    context = "the good film was not slow it was a fast story the bad plot"
    answers = [{"text": "fast story", "answer_start": context.index("fast")}]
    questions = [{"id": str(n), "question": x, "answers": answers} for n, x in enumerate(TEXTS)]
    content = {"data": [{"paragraphs": [{"context": context, "qas": questions}]}]}
    (folder / "squad.json").write_text(json.dumps(content))
    path = str(folder / "squad.json")
    lengths = {"max_query_length": 5, "doc_stride": 4, "max_seq_length": 16}
    return SquadOptions(**{**flags, **lengths}, train_file=path, predict_file=path)


def embeddings(flags, folder, **more):
    rows = [
        {"query": x, "passage": y, "others": [TEXTS[n - 1]][: n % 3], "score": n / 4}
        for n, (x, y) in enumerate(itertools.pairwise(TEXTS))
    ]
    write_rows(folder, rows)
    columns = {"anchor_column": "query", "positive_column": "passage"}
    more = more or {"negative_columns": "others", "query_prefix": "the ", "max_query_length": 5}
    return EmbeddingsOptions(**flags, **columns, **more, data_dir=str(folder))


def scored_embeddings(flags, folder):
    return embeddings(flags, folder, score_column="score", loss="cosent")


def ranking(flags, folder, **more):
    rows = [
        {"query": x, "passage": y, "others": [TEXTS[n - 1]][: n % 2]}
        for n, (x, y) in enumerate(itertools.pairwise(TEXTS))
    ]
    write_rows(folder, rows)
    lines = (f"q1\td{n}\t{TEXTS[0]}\t{text}\n" for n, text in enumerate(TEXTS))
    (folder / "found.tsv").write_text("".join(lines))
    columns = {"anchor_column": "query", "positive_column": "passage", "num_negatives": 2}
    more = more or {"negative_columns": "others", "loss": "listwise"}
    files = {"data_dir": str(folder), "predict_file": "found.tsv"}
    return RankingOptions(**flags, **columns, **files, **more)


def reranking(flags, folder):
    return ranking(flags, folder, run_file=str(folder / "found.tsv"))


def own_retrieval(flags, folder):
    rows = [{"query": x, "passages": [x, y]} for x, y in itertools.pairwise(TEXTS)]
    write_rows(folder, rows)
    paths = {name: str(folder / f"{name}.jsonl") for name in ("train", "dev")}
    return RetrievalOptions(**flags, train_file=paths["train"], eval_file=paths["dev"])


def own_relations(flags, folder):
    for split in SPLITS:
        lines = (f"{text}\t0\t1\t{'xy'[n % 2]}\n" for n, text in enumerate(TEXTS))
        (folder / f"{split}.tsv").write_text("text\tfirst\tsecond\trelation\n" + "".join(lines))
    return page.RelationOptions(**flags, data_dir=str(folder))


def own_pooling(flags, folder):
    return page.MeanPoolingOptions(**vars(windows(flags, folder)))


def own_margin(flags, folder):
    return page.MarginOptions(**vars(embeddings(flags, folder)))


PAIRS = [(text, "it was bad") for text in TEXTS]
# Function that writes data and returns options -> inputs of a `Predictor`.
CASES = {
    classification: TEXTS,
    windows: PAIRS,
    multilabel: TEXTS,
    regression: TEXTS,
    glue: TEXTS,
    task_module: PAIRS,
    multiple_choice: [(text, *TEXTS[:4]) for text in TEXTS],
    ner: TEXTS,
    ner_in_documents: [tuple(text.split()) for text in TEXTS],
    squad: PAIRS,
    embeddings: TEXTS,
    scored_embeddings: TEXTS,
    ranking: PAIRS,
    reranking: PAIRS,
    own_retrieval: TEXTS,
    own_relations: [(text, 0, 1) for text in TEXTS],
    own_pooling: PAIRS,
    own_margin: TEXTS,
}


WITHOUT_TEST_SETS = (embeddings, scored_embeddings, own_retrieval, own_margin)


def make_task(options):
    entry = registry.entries()[registry.script_of(type(options))]
    return registry.load(entry.make_task)(*read_model_files(options))


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.__name__)
def case(request, tiny, tmp_path_factory):
    """The options of a training run, its task with a schema, and its examples by split."""
    folder = tmp_path_factory.mktemp(request.param.__name__)
    flags = {**tiny.flags, "init_checkpoint": tiny.checkpoint, "output_dir": str(folder / "out")}
    has_test_set = request.param not in WITHOUT_TEST_SETS
    flags |= {"do_train": True, "do_eval": True, "do_predict": has_test_set}
    options = request.param(flags, folder)
    task = give_schema(make_task(options))
    splits = ["train", "eval", *[options.predict_split] * has_test_set]
    examples = {split: task.read(split) for split in splits}
    return SimpleNamespace(
        options=options, task=task, examples=examples, inputs=CASES[request.param], folder=folder
    )


def rows_of(task, examples, split):
    return {
        feature.name: np.asarray(task.featurize(examples, split)[feature.name])
        for feature in task.features(split)
    }


def assert_equal(rows, others):
    assert rows.keys() == others.keys()
    for name in rows:
        np.testing.assert_array_equal(rows[name], others[name], err_msg=name)


def test_constructor_reads_no_file(case, monkeypatch):
    model_files = read_model_files(case.options)
    entry = registry.entries()[registry.script_of(type(case.options))]

    def fail(*args, **kwargs):
        raise AssertionError(f"The constructor reads {args}")

    with monkeypatch.context() as patch:
        patch.setattr(builtins, "open", fail)
        for name in ("open_binary", "read_text", "read_lines", "exists", "list_dir", "is_dir"):
            patch.setattr(files, name, fail)
        task = registry.load(entry.make_task)(*model_files)
    assert task.options is model_files.options
    # Either unknown, or the same for all data.
    assert task.schema is type(task).schema or task.schema is NO_SCHEMA


def test_schema_is_set_once(case, monkeypatch):
    task = make_task(case.options)
    sources = []
    infer_schema = task.infer_schema
    monkeypatch.setattr(task, "infer_schema", lambda s: sources.append(s) or infer_schema(s))
    give_schema(task)
    assert sources == ["train"]
    assert task.schema.labels == case.task.schema.labels
    assert isinstance(task.schema.labels, tuple)
    json.dumps(task.schema.entries)
    assert all(isinstance(value, str) for value in task.schema.entries.values())
    assert isinstance(task.traits, Traits)


def test_schema_of_the_folder_of_the_run(case):
    """A `Predictor`, an export and a teacher take it from there."""
    folder = RunFolder(case.options.output_dir)
    files.make_dirs(folder.path)
    files.write_texts(folder.path, run_metadata.model_files(case.options, case.task.schema))
    options = run_metadata.options_for_model(folder.path)
    schema, expected = give_schema(make_task(options)).schema, case.task.schema
    assert (schema.labels, schema.text_pairs) == (expected.labels, expected.text_pairs)
    assert dict(schema.entries) == dict(expected.entries)
    # An export of the export has the same.
    exported = RunFolder(f"{folder.path}/exported")
    files.make_dirs(exported.path)
    files.write_texts(exported.path, run_metadata.model_files(options, schema))
    again = give_schema(make_task(run_metadata.options_for_model(exported.path))).schema
    assert (again.labels, dict(again.entries)) == (expected.labels, dict(expected.entries))


def test_reading_twice(case):
    task = case.task
    before = dict(vars(task))
    for split, examples in case.examples.items():
        again = task.read(split)
        assert len(again) == len(examples) > 0
        assert list(map(repr, task.identity(again))) == list(map(repr, task.identity(examples)))
        assert_equal(rows_of(task, again, split), rows_of(task, examples, split))
    assert vars(task) == before
    assert task.options is case.options


def test_rows_have_the_declared_features(case):
    task = case.task
    for split, examples in case.examples.items():
        features, rows = task.features(split), task.featurize(examples, split)
        (count,) = {len(rows[feature.name]) for feature in features}
        assert count >= len(examples)
        for feature in features:
            values = np.asarray(rows[feature.name])
            assert values.shape == (count, *feature.shape), feature
            assert (values.dtype.kind == "f") == (feature.dtype == "float32"), feature
        if CUT_TOKENS in rows:
            assert len(rows[CUT_TOKENS]) == count
    inputs = {feature.name for feature in task.features("predict")}
    assert inputs <= {feature.name for feature in task.features("train")}
    assert task.epoch_size(case.examples["train"]) > 0


def test_slices_give_the_same_rows(case):
    task = case.task
    for split, examples in case.examples.items():
        bounds = [*range(0, len(examples), 2), len(examples)]
        parts = [rows_of(task, examples[i:j], split) for i, j in itertools.pairwise(bounds)]
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        assert_equal(joined, rows_of(task, examples, split))


def test_identity(case):
    for examples in case.examples.values():
        pairs = list(case.task.identity(examples))
        items = [item for item, texts in pairs if texts]
        # In SQuAD, examples are the windows of questions.
        assert len(items) == len(getattr(examples, "questions", examples))
        for item, texts in pairs:
            assert "object at 0x" not in repr(item)
            assert all(isinstance(text, str) for text in texts)


def test_checks_are_sentences(case):
    task = case.task
    for split, examples in case.examples.items():
        problems = list(task.check(split, examples, case.examples["train"]))
        assert all(isinstance(problem, str) and problem for problem in problems)


@pytest.fixture(scope="module")
def model(case):
    model = case.task.build_model()
    assert hasattr(model, "bert")
    return model


def apply(task, model, rows):
    batch = {name: rows[name] for name in rows if name in model.input_names or "/" in name}
    return model({name: np.asarray(values, np.int32) for name, values in batch.items()})


def test_loss_of_each_row(case, model):
    rows = rows_of(case.task, case.examples["train"], "train")
    losses = case.task.loss(apply(case.task, model, rows), rows, training=True)
    assert losses.shape == (len(rows["input_ids"]),)
    assert np.isfinite(losses).all()


def test_evaluation_and_results(case, model):
    task, folder = case.task, case.folder / "results"
    files.make_dirs(str(folder))
    for split in [s for s in case.examples if s != "train"]:
        examples = case.examples[split]
        rows = rows_of(task, examples, split)
        outputs = task.fetch(apply(task, model, rows), rows)
        arrays = {name: np.asarray(values) for name, values in outputs.items()}
        assert {len(values) for values in arrays.values()} == {len(rows["input_ids"])}
        has_targets = split == "eval" and task.features(split) == task.features("train")
        if "label_ids" in rows and has_targets:
            arrays["loss"] = np.zeros(len(rows["input_ids"]), np.float32)
        predictions = task.decode(examples, arrays)
        assert len(predictions) == len(getattr(examples, "questions", examples))
        if split == "eval":
            metrics = task.metrics(examples, predictions)
            names = {name.removeprefix("eval_") for name in metrics} | {"loss"}
            assert {metric.name for metric in task.traits.monitors} <= names
            report = task.evaluation_report(examples, predictions, arrays.get("loss"))
            # A row is an example; for sentence encoders, a pair or a query.
            assert len(report) == getattr(examples, "num_queries", len(predictions))
            assert len({len(column) for column in report.columns.values()}) == 1
        written = task.write(split, examples, predictions, str(folder))
        assert isinstance(written, Written)
        json.dumps(dict(written.entries))
        assert all(files.exists(path) for path in written.paths)


def test_inputs_of_a_predictor(case, model):
    task = case.task
    examples = task.from_inputs(case.inputs)
    rows = rows_of(task, examples, "predict")
    outputs = task.fetch(apply(task, model, rows), rows)
    arrays = {name: np.asarray(values) for name, values in outputs.items()}
    assert len(task.decode(examples, arrays)) == len(case.inputs)


def test_rows_that_overflow_are_noticed(case, model):
    """Finite weights, with which the hidden states of one word overflow."""
    task, word = case.task, "plot"
    other = next((item for item in case.inputs if word not in str(item)), "")
    inputs = [x for x in (other, case.inputs[1]) if x]
    rows = rows_of(task, task.from_inputs(inputs), "predict")
    table, id_ = model.bert.embeddings.word_embeddings, task.tokenizer.reference.vocab[word]
    before = table.numpy()
    weights = before.copy()
    weights[id_] = 3e38
    table.assign(weights)
    is_finite = checked(task.fetch)(apply(task, model, rows), rows)["is_finite"]
    table.assign(before)
    axes = tuple(range(1, rows["input_ids"].ndim))
    np.testing.assert_array_equal(is_finite, ~(rows["input_ids"] == id_).any(axes))


def test_outputs_of_an_export(case, model):
    task = case.task
    rows = rows_of(task, task.from_inputs(case.inputs), "predict")
    outputs = task.fetch(apply(task, model, rows), rows, serving=True)
    assert outputs
    assert {len(values) for values in outputs.values()} == {len(rows["input_ids"])}


def test_options_are_not_replaced(case):
    assert dataclasses.asdict(case.task.options) == dataclasses.asdict(case.options)
