"""The notebooks run from clean in this interpreter, draw what they promise, and are kept without outputs."""

import os
from pathlib import Path

import nbformat
import pytest
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpecManager
from nbclient import NotebookClient

REPOSITORY = Path(__file__).parent.parent
NOTEBOOKS = sorted((REPOSITORY / "notebooks").glob("*.ipynb"))
# Some 10 s each; the first run on a machine also compiles the controllers and the simulation.
CELL_TIMEOUT_S = 600


def read(path):
    return nbformat.read(path, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_from_clean_and_draws_its_plots(path):
    notebook = read(path)
    # Without installed kernel specs only that of the running interpreter is left.
    manager = AsyncKernelManager(kernel_spec_manager=KernelSpecManager(kernel_dirs=[]))
    client = NotebookClient(
        notebook, timeout=CELL_TIMEOUT_S, km=manager, resources={"metadata": {"path": str(path.parent)}}
    )
    client.execute(env=os.environ | {"PYTHONPATH": str(REPOSITORY)})
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    assert [output.text for output in outputs if output.output_type == "stream" and output.name == "stderr"] == []
    drawn = sum("image/png" in output.get("data", {}) for output in outputs)
    promised = sum(
        cell.source.endswith("\ndrawing") or "cct.plot_flow(" in cell.source for cell in code_cells(notebook)
    )
    assert drawn == promised > 0


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_kept_without_outputs(path):
    kept = [cell for cell in code_cells(read(path)) if cell.outputs or cell.execution_count is not None]
    assert [cell.source for cell in kept] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_asks_for_no_particular_machines_kernel(path):
    assert read(path).metadata == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
