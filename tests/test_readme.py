"""What the README shows works as it stands there."""

import re
import subprocess
import sys

from tests.oracle import ROOT

README = (ROOT / "README.md").read_text()


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


def test_demo():
    command = [sys.executable, "examples/reviews/demo.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    accuracy = float(re.search(r"eval_accuracy = ([\d.]+)", done.stdout)[1])
    assert accuracy >= 0.65
    rows = re.findall(r"^ +([\d.]+)% ([+-])  \S", done.stdout, re.M)
    assert len(rows) == 20
    assert all((float(percent) > 50) == (sign == "+") for percent, sign in rows)


def test_every_flag_that_is_named_exists():
    from bert_tf import options

    scripts = (
        options.ClassifierOptions,
        options.ExtractionOptions,
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
