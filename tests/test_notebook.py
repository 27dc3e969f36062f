"""Runs the notebook in `examples/`, and checks its stored outputs."""

import os
import re
import sys

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

from tests.oracle import ROOT

NOTEBOOK = ROOT / "examples" / "movie_reviews.ipynb"


class CurrentPythonKernel(KernelSpecManager):
    """Provides one kernel, which uses the tests' Python instead of the installed `python3`."""

    def get_kernel_spec(self, kernel_name):
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=argv, display_name="this Python", language="python")


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """The notebook's code cells, after running them in its folder."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    folder = tmp_path_factory.mktemp("kernel")
    kernel_manager = AsyncKernelManager(
        kernel_spec_manager=CurrentPythonKernel(), connection_file=str(folder / "connection.json")
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "IPYTHONDIR": str(folder)}
    environment.pop("MPLBACKEND", None)
    # A failing cell raises CellExecutionError, with its traceback.
    NotebookClient(notebook, timeout=300, km=kernel_manager).execute(
        cleanup_kc=True, cwd=str(NOTEBOOK.parent), env=environment
    )
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _stdout(cells):
    return "".join(o.text for cell in cells for o in cell.outputs if o.output_type == "stream")


def _parse_int(text):
    return int(text.replace(",", ""))


def _images(cells):
    outputs = [output for cell in cells for output in cell.outputs]
    return [o.data["image/png"] for o in outputs if "image/png" in o.get("data", {})]


def test_notebook_trains_a_classifier(cells):
    output_types = {output.output_type for cell in cells for output in cell.outputs}
    assert output_types <= {"stream", "display_data"}
    streams = [o.name for cell in cells for o in cell.outputs if o.output_type == "stream"]
    assert set(streams) == {"stdout"}
    accuracies = re.findall(r"accuracy [\d.]+ on the training set, ([\d.]+) on", _stdout(cells))
    assert len(accuracies) == 3
    # The labels are balanced.
    assert float(accuracies[-1]) >= 0.62
    assert len(_images(cells)) == 1


def test_notebook_counts_trained_parameters(cells):
    frozen, unfrozen = re.findall(r"Trained: ([\d,]+) of ([\d,]+)", _stdout(cells))
    head = 128 * 64 + 64 + 64 * 2 + 2
    pooler = 128 * 128 + 128
    encoder = 1_503_104
    assert [_parse_int(count) for count in frozen] == [head, encoder + head]
    assert [_parse_int(count) for count in unfrozen] == [encoder - pooler + head, encoder + head]


def test_notebook_is_stored_with_outputs():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    stored = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in stored] == list(range(1, len(stored) + 1))
    assert len(_images(stored)) == 1
    assert {output.get("name", "stdout") for cell in stored for output in cell.outputs} == {
        "stdout"
    }
    assert "error" not in {output.output_type for cell in stored for output in cell.outputs}
    assert not re.search(r"""["' ]/(home|Users|root|tmp|work)/""", NOTEBOOK.read_text())
    assert NOTEBOOK.stat().st_size < 300_000
