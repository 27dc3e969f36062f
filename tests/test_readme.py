"""What the README shows works as it stands there."""

import re
import shlex
import subprocess
import sys

import pytest

from bert_tf.data.task_module import load_task_module
from tests.oracle import ROOT

README = (ROOT / "README.md").read_text()


@pytest.fixture(scope="module")
def tiny(tiny_of_two_layers):
    return tiny_of_two_layers


def test_library_examples(tiny):
    blocks = re.findall(r"```python\n(.*?)```", README, re.S)
    code = "\n".join(block for block in blocks if "tokenizer" in block)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tiny.folder,
        env={"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "39 variables restored from bert_model.ckpt" in done.stdout
    assert "(1, 16) (1, 6, 16)" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("[")


def test_a_task_of_ones_own(tmp_path):
    (block,) = (b for b in re.findall(r"```python\n(.*?)```", README, re.S) if "class Films" in b)
    (tmp_path / "my_task.py").write_text(block)
    (tmp_path / "films.txt").write_text("A slow plot|bad\nA fine story|good\n")
    films = load_task_module(str(tmp_path / "my_task.py"), str(tmp_path))
    assert films.labels == ("bad", "good")
    assert [(e.text_a, e.label) for e in films.read("train")] == [
        ("A slow plot", "bad"),
        ("A fine story", "good"),
    ]


def test_demo():
    command = [sys.executable, "examples/reviews/demo.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    accuracy = float(re.search(r"eval_accuracy = ([\d.]+)", done.stdout)[1])
    assert accuracy >= 0.65
    rows = re.findall(r"^ +([\d.]+)% ([+-])  \S", done.stdout, re.M)
    assert len(rows) == 20
    assert all((float(percent) > 50) == (sign == "+") for percent, sign in rows)


def test_words_for_masks():
    """The table is what the small BERT of the repository says."""
    section = README.split("### Words for masks")[1].split("###")[0]
    (command,) = re.findall(r"```\npython (.*?)```", section, re.S)
    flags = shlex.split(re.sub(r"--text=\".*?\" ", "", command.replace("\\\n", " ")))
    flags += ["--input_file=examples/small_bert/sentences.txt", "--top_k=3"]
    done = subprocess.run([sys.executable, *flags], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    table = re.findall(r"^\| (.*\[MASK\].*) \| (.*) \|$", section, re.M)
    assert len(table) == 10
    for (text, words), block in zip(table, done.stdout.split("\n\n"), strict=False):
        first, *rows = block.splitlines()
        assert first == text
        # A column for each mask. Of two that are as probable, either may be the first.
        found = [dict(zip(*[iter(row.split())] * 2)) for row in rows]  # noqa: B905
        columns = [re.findall(r"(\w+) ([\d.]+) %", column) for column in words.split(" / ")]
        expected = {word: float(percent) for column in columns for word, percent in column}
        assert len(expected) == 3 * len(columns)
        values = {word: float(p[:-1]) for row in found for word, p in row.items()}
        assert values == pytest.approx(expected, abs=0.11)


def test_every_flag_that_is_named_exists():
    from bert_tf import options

    scripts = (
        options.ClassifierOptions,
        options.ConversionOptions,
        options.ExportOptions,
        options.ExtractionOptions,
        options.HubClassifierOptions,
        options.MaskedWordsOptions,
        options.NerOptions,
        options.PretrainingDataOptions,
        options.PretrainingOptions,
        options.SquadOptions,
        options.VocabularyOptions,
    )
    known = {"help", "flagfile"}.union(*(script.__dataclass_fields__ for script in scripts))
    # Benchmarks have flags of their own.
    text = "\n".join(line for line in README.splitlines() if "benchmarks/" not in line)
    named = set(re.findall(r"--(\w+)", text))
    assert named - known == set()
    assert len(named) > 10
