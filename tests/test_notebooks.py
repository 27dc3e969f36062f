"""Runs the notebooks in `examples/`, and checks their stored outputs."""

import os
import re
import sys

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

from tests.oracle import ROOT

EXAMPLES = ROOT / "examples"
NOTEBOOKS = ("reviews", "custom_head", "nearest_texts")


class CurrentPythonKernel(KernelSpecManager):
    """Provides one kernel, which uses the tests' Python instead of the installed `python3`."""

    def get_kernel_spec(self, kernel_name):
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=argv, display_name="this Python", language="python")


@pytest.fixture(scope="module")
def run_notebook(tmp_path_factory):
    """Returns a function that runs a notebook in its folder, and returns its code cells."""

    def run(name):
        notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
        folder = tmp_path_factory.mktemp("kernel")
        kernel_manager = AsyncKernelManager(
            kernel_spec_manager=CurrentPythonKernel(),
            connection_file=str(folder / "connection.json"),
        )
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "IPYTHONDIR": str(folder)}
        environment.pop("MPLBACKEND", None)
        # A failing cell raises CellExecutionError, with its traceback.
        NotebookClient(notebook, timeout=1800, km=kernel_manager).execute(
            cleanup_kc=True, cwd=str(EXAMPLES), env=environment
        )
        return _code_cells(notebook)

    return run


def _code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _stream(cells, name):
    outputs = [output for cell in cells for output in cell.outputs]
    return "".join(o.text for o in outputs if o.get("name") == name)


def _parse_int(text):
    return int(text.replace(",", ""))


def _num_images(cells):
    outputs = [output for cell in cells for output in cell.outputs]
    return sum("image/png" in o.get("data", {}) for o in outputs)


@pytest.mark.slow
def test_custom_head(run_notebook):
    cells = run_notebook("custom_head")
    stdout = _stream(cells, "stdout")
    assert not _stream(cells, "stderr")
    accuracies = re.findall(r"accuracy [\d.]+ on the training set, ([\d.]+) on", stdout)
    assert len(accuracies) == 3
    # The labels are balanced.
    assert float(accuracies[-1]) >= 0.62
    assert _num_images(cells) == 1

    frozen, unfrozen = re.findall(r"Trained: ([\d,]+) of ([\d,]+)", stdout)
    head = 128 * 64 + 64 + 64 * 2 + 2
    pooler = 128 * 128 + 128
    encoder = 1_503_104
    assert [_parse_int(count) for count in frozen] == [head, encoder + head]
    assert [_parse_int(count) for count in unfrozen] == [encoder - pooler + head, encoder + head]


@pytest.mark.slow
def test_reviews(run_notebook):
    cells = run_notebook("reviews")
    stdout = _stream(cells, "stdout")
    assert float(re.search(r"Accuracy: ([\d.]+)", stdout)[1]) >= 0.7
    assert "negative {'negative': 0.9" in stdout
    assert "'label': [b'negative']" in stdout
    # Only the progress bar, no warning.
    assert set(re.findall(r"^\s*(\w+):", _stream(cells, "stderr"), re.M)) == {"train"}
    assert _num_images(cells) == 1


def test_nearest_texts(run_notebook):
    cells = run_notebook("nearest_texts")
    stdout = _stream(cells, "stdout")
    assert not _stream(cells, "stderr")
    similarities = [float(value) for value in re.findall(r"^([\d.]+)  ", stdout, re.M)]
    assert similarities == sorted(similarities, reverse=True)
    assert len(similarities) == 10
    assert "sea" in stdout


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_are_stored_with_outputs(name):
    path = EXAMPLES / f"{name}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    stored = _code_cells(notebook)
    assert [cell.execution_count for cell in stored] == list(range(1, len(stored) + 1))
    assert "error" not in {output.output_type for cell in stored for output in cell.outputs}
    assert _stream(stored, "stdout")
    assert not re.search(r"""["' ]/(home|Users|root|tmp|work)/""", path.read_text())
    assert path.stat().st_size < 300_000
