"""Tests of README and docs: their commands and programs run, in page order.

Blocks fenced as `bash` or `python` are run; `text`, `py` and `json` are not. Running a page takes
minutes, so these tests are marked slow; `test_demo_script` runs the main job in each test run.
"""

import ast
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from benchmarks import tables
from bert_tf.options.registry import SCRIPTS
from bert_tf.tasks.classification.task_module import load_task_module
from docs import flags, pictures
from tests import sample_data
from tests.oracle import ROOT
from tests.processes import run_python

README = "README.md"
PAGES = [README, *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md"))]
_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.S | re.M)


def fenced_blocks(page: str) -> list[tuple[str, str]]:
    """Returns the language and text of each fenced block."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [(language, body) for _, language, body in _BLOCK.findall(text)]


@pytest.mark.parametrize("page", PAGES)
def test_fenced_blocks_declare_a_known_language(page):
    languages = {language for language, _ in fenced_blocks(page)}
    assert languages <= {"bash", "python", "text", "py", "json"}


@pytest.fixture
def repository_copy(tmp_path):
    """A copy of the repository, and the environment for its commands."""
    ignored = shutil.ignore_patterns(".*", "__pycache__", "output", "*.egg-info")
    shutil.copytree(ROOT, tmp_path / "bert_tf", ignore=ignored)
    variables = sample_data.write_all(tmp_path / "data")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {"PATH": path, "PYTHONPATH": str(tmp_path / "bert_tf"), "HOME": str(tmp_path)}
    return tmp_path / "bert_tf", {**environment, **variables, "TF_CPP_MIN_LOG_LEVEL": "3"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if {"bash", "python"} & {kind for kind, _ in fenced_blocks(page)}],
)
def test_commands_run_in_page_order(page, repository_copy):
    folder, environment = repository_copy
    commands = "\n".join(body for language, body in fenced_blocks(page) if language == "bash")
    program = "\n".join(body for language, body in fenced_blocks(page) if language == "python")
    for command in (["bash", "-ec", commands], [sys.executable, "-c", program]):
        result = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=1800
        )
        assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
        assert "Traceback" not in result.stderr


@pytest.mark.parametrize("script", SCRIPTS)
def test_flag_tables_match_the_options(script):
    text = (flags.PAGES / f"{script}.md").read_text(encoding="utf-8")
    assert flags.page(script) == text, "run python docs/flags.py"
    assert all(
        f"| `--{name}` |" in text for name in SCRIPTS[script].options_class.__dataclass_fields__
    )


def test_site_builds_without_warnings(tmp_path, caplog, monkeypatch):
    monkeypatch.chdir(ROOT)
    with caplog.at_level(logging.WARNING):
        build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path / "site"), strict=True))
    assert not [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    api = (tmp_path / "site/api/index.html").read_text()
    assert "from_output_dir" in api
    assert "Raises:" in api


def test_readme_links_resolve():
    text = (ROOT / README).read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    assert len(links) > 20
    for link in links:
        assert (ROOT / link.split("#")[0]).exists(), link


def test_each_dependency_has_its_reason():
    setup = (ROOT / "setup.py").read_text(encoding="utf-8")
    lines = [line.strip() for line in setup.splitlines()]
    required = [i for i, x in enumerate(lines) if re.match(r'\W*f?"[\w-]+(\[.*?\])?>=', x)]
    assert len(required) > 25
    for index in required:
        assert "#" in lines[index] or lines[index - 1].startswith("#"), lines[index]


def test_readme_is_short_and_begins_with_code():
    lines = (ROOT / README).read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 200
    assert "```python" in lines[:15]


@pytest.mark.parametrize("page", tables.PAGES)
def test_tables_match_the_results(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert "<!-- table: " in text
    assert text == tables.update(page), "python benchmarks/tables.py writes them"


@pytest.mark.parametrize("page", [README, "docs/choosing.md"])
def test_ratios_in_sentences_are_those_of_the_results(page):
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    quoted = re.findall(r"(?<=ratio )\d\.\d\d|\d\.\d\d(?= times)", text)
    assert len(quoted) >= 2
    assert set(quoted) <= {f"{row[-1]:.2f}" for row in tables.comparisons()}


def test_documented_flags_exist():
    known = {"help", "flagfile"}.union(
        *(script.options_class.__dataclass_fields__ for script in SCRIPTS.values())
    )
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        # Benchmarks, the launcher and third-party programs have other flags.
        own_lines = [line for line in text.splitlines() if not _OTHER_COMMANDS.search(line)]
        used = set(re.findall(r"(?<![\w-])--(\w+)", "\n".join(own_lines)))
        assert used - known == set(), page


def test_commands_use_flags_of_their_script():
    num_commands = 0
    for page in PAGES:
        for _, text in fenced_blocks(page):
            for line in text.replace("\\\n", " ").splitlines():
                script = re.search(r"(?<![\w/])(\w+)\.py(?= )", line)
                if not script or script[1] not in SCRIPTS or _OTHER_COMMANDS.search(line):
                    continue
                num_commands += 1
                used = set(re.findall(r"(?<![\w-])--(\w+)", line[script.end() :]))
                known = {"help", "flagfile", *SCRIPTS[script[1]].options_class.__dataclass_fields__}
                assert used <= known, f"{page}: {line}"
    assert num_commands > 50


def test_quoted_messages_exist_in_the_package():
    patterns = _message_patterns()
    num_messages = 0
    for page in PAGES:
        for _, text in fenced_blocks(page):
            # Messages may span lines.
            quoted = r"^(?:ERROR|WARNING): (.*(?:\n(?!ERROR|WARNING|INFO|\$).+)*)"
            for match in re.findall(quoted, text, re.M):
                message = " ".join(match.split())
                if not message.startswith(_THIRD_PARTY_MESSAGES):
                    num_messages += 1
                    assert _literal_fraction(message, patterns) > 0.5, f"{page}: {message}"
    assert num_messages > 30


def _literal_fraction(message: str, patterns: Iterable[re.Pattern]) -> float:
    """Returns the fraction of a message that is literal text of a template in the package."""
    matched = set()
    for match in filter(None, (pattern.search(message) for pattern in patterns)):
        placeholders = (range(*match.span(group)) for group in range(1, match.re.groups + 1))
        matched |= set(range(*match.span())).difference(*placeholders)
    return len(matched) / len(message)


def _message_patterns() -> list[re.Pattern]:
    """Returns patterns of the package's messages, with a group for each placeholder."""
    templates = []
    for path in ROOT.glob("bert_tf/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [getattr(part, "value", None) for part in node.values]
                literals = [part if isinstance(part, str) else None for part in parts]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                # Placeholders like %s, or group references in a regex replacement.
                texts = re.split(r"%[-.\d]*[a-z]|\\\d", node.value)
                literals = [part for text in texts for part in (text, None)][:-1]
            else:
                continue
            if sum(map(len, filter(None, literals))) >= 15:
                pattern = ("(.*)" if part is None else re.escape(part) for part in literals)
                templates.append("".join(pattern))
    return list(map(re.compile, templates))


_THIRD_PARTY_MESSAGES = (
    "Could not find a version that satisfies",
    "No matching distribution found",
    "All log messages before absl",
)
_OTHER_COMMANDS = re.compile(
    r"benchmarks/|launch\.py|small_bert/make\.py|pip install|docker|saved_model_cli|srun|sbatch"
    r"|curl|#SBATCH|-gpus|--(enable_batching|input_exprs|no-deps|restarts|workers|books)|transformers-cli"
    r"|--(name|na-prob-thresh|use_gpu|dopredict|do_trian|preserve_unused_tokens|project)\b"
)


def test_custom_task_example(tmp_path):
    (block,) = (
        body for _, body in fenced_blocks("docs/scripts/run_classifier.md") if "class " in body
    )
    (tmp_path / "my_task.py").write_text(block)
    (tmp_path / "films.txt").write_text("A slow plot|bad\nA fine story|good\n")
    films = load_task_module(str(tmp_path / "my_task.py"), str(tmp_path))
    assert films.labels == ("bad", "good")
    assert [(e.text_a, e.label) for e in films.read("train")] == [
        ("A slow plot", "bad"),
        ("A fine story", "good"),
    ]


def test_demo_script():
    output = pictures.run(*pictures.DEMO_COMMAND)
    (right,) = re.findall(r"^(\d+) of 100 reviews are labeled correctly", output, re.M)
    assert int(right) >= 70
    rows = re.findall(r"^  (positive|negative) +([\d.]+)%  \S", output, re.M)
    assert [label for label, _ in rows] == ["positive"] * 3 + ["negative"] * 3
    assert all(float(percent) > 90 for _, percent in rows)
    shown = pictures.terminal_lines((ROOT / "docs/demo.svg").read_bytes())
    assert pictures.shape(shown) == pictures.shape(pictures.demo_lines(output)), "make pictures"


def test_fill_mask_table():
    """The table shows the predictions of the small BERT in the repository."""
    page = "docs/scripts/predict_masked.md"
    (command,) = (body for language, body in fenced_blocks(page) if language == "bash")
    command = command.replace("$BERT_BASE_DIR", "examples/small_bert").replace("\\\n", " ")
    flags = shlex.split(re.sub(r"--text=\".*?\" ", "", command))[1:]
    flags += ["--input_file=examples/small_bert/sentences.txt", "--top_k=3"]
    result = run_python(*flags)
    assert result.returncode == 0, result.stderr
    text = (ROOT / page).read_text(encoding="utf-8")
    table = re.findall(r"^\| (.*\[MASK\].*) \| (.*) \|$", text.split("## Flags")[0], re.M)
    assert len(table) == 10
    for (sentence, answers), block in zip(table, result.stdout.split("\n\n"), strict=False):
        first, *rows = block.splitlines()
        assert first == sentence
        # One column per mask; words with equal probabilities may be in any order.
        predictions = [dict(zip(*[iter(row.split())] * 2)) for row in rows]  # noqa: B905
        columns = [re.findall(r"(\w+) ([\d.]+) %", column) for column in answers.split(" / ")]
        expected = {word: float(percent) for column in columns for word, percent in column}
        assert len(expected) == 3 * len(columns)
        values = {word: float(p[:-1]) for row in predictions for word, p in row.items()}
        assert values == pytest.approx(expected, abs=0.11)
