"""Run the notebooks and keep what they print and draw: ``python notebooks/rebuild.py [--check] [NAME ...]``.

Without `--check` the outputs are written into the notebooks: small pictures, no counters of runs, no times,
nothing of the machine. With it nothing is written, and what differs from the kept outputs is printed: text by
its words and numbers (half a per cent, or the last digit printed), pictures by what can be seen from a distance. The
tests do the same. NAME is a notebook or the beginning of its name, such as 03.
"""

import base64
import copy
import html
import io
import os
import re
import sys
import time
from pathlib import Path

import nbformat
import numpy as np
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpecManager
from nbclient import NotebookClient
from PIL import Image

FOLDER = Path(__file__).resolve().parent
# The first run on a machine also compiles the controllers and the simulation.
CELL_TIMEOUT_S = 600
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
# Addresses, and absolute paths wherever a checkout lies (two names at least: not the end of a tag, nor a URL's).
OF_THE_MACHINE = re.compile(r"0x[0-9a-f]{6,}|(?<![\w.:/<…])/(?:[^\s'\"<>),:/]+/)+[^\s'\"<>),:]*")
COLOURS = 64
CELL_PX = 8  # pictures are compared in squares of so many pixels,
SHADE = 40  # which differ from so many of 255 shades on;
DIFFERENT = 0.04  # a picture is another one from this share of the squares that are not empty


def names(chosen=()):
    """Return the notebooks, or those whose names begin with one of `chosen`, as paths."""
    every = sorted(FOLDER.glob("*.ipynb"))
    return [path for path in every if not chosen or path.name.startswith(tuple(chosen))]


def read(path):
    """Return a notebook as it is kept."""
    return nbformat.read(path, as_version=4)


def run(path):
    """Return a notebook with the outputs of a run from clean, in this interpreter."""
    notebook = read(path)
    # Without installed kernel specs only that of the running interpreter is left.
    manager = AsyncKernelManager(kernel_spec_manager=KernelSpecManager(kernel_dirs=[]))
    where = {"metadata": {"path": str(path.parent)}}
    client = NotebookClient(notebook, timeout=CELL_TIMEOUT_S, km=manager, resources=where, record_timing=False)
    client.extra_arguments = ["--log-level=ERROR"]  # no word about unencrypted sockets of this machine
    client.execute(env=os.environ | {"PYTHONPATH": str(FOLDER.parent)})
    return notebook


def kept(notebook):
    """Return a notebook as it is put into git: small pictures, and nothing that differs from run to run."""
    out = copy.deepcopy(notebook)
    out.metadata = nbformat.from_dict(METADATA)
    for number, cell in enumerate(code_cells(out), start=1):
        cell.execution_count = None
        cell.metadata = {}
        for output in cell.outputs:
            output.pop("execution_count", None)
            if output.output_type == "stream":
                output.text = OF_THE_MACHINE.sub("…", output.text)
            if output.output_type == "execute_result":
                output.execution_count = None
            data = output.get("data", {})
            if " at 0x" in data.get("text/plain", "") and "text/html" in data:
                data["text/plain"] = _words(data["text/html"])
            data |= {kind: OF_THE_MACHINE.sub("…", text) for kind, text in data.items() if kind.startswith("text/")}
            if "text/html" in data:  # styled tables have identifiers, drawn anew in each run
                data["text/html"] = re.sub(r"\bT_[0-9a-f]{5}(?=[_\W])", f"T_cell{number}", data["text/html"])
            if "image/png" in data:
                data["image/png"] = small(data["image/png"])
                output.metadata = {}
    return out


def code_cells(notebook):
    """Return the cells that are run."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def small(png):
    """Return a picture (base64) with a palette."""
    squeezed = io.BytesIO()
    picture(png).quantize(COLOURS, dither=Image.Dither.NONE).save(squeezed, "PNG", optimize=True)
    return base64.b64encode(squeezed.getvalue()).decode("ascii")


def picture(png):
    """Return an image of base64 text."""
    return Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")


def differences(before, now):
    """Return what differs between the outputs of two notebooks, a sentence each (none: they say the same)."""
    said = []
    for index, (old, new) in enumerate(zip(code_cells(before), code_cells(now), strict=True)):
        where = f"code cell {index + 1}"
        if [_kind(output) for output in old.outputs] != [_kind(output) for output in new.outputs]:
            said.append(f"{where}: {[_kind(o) for o in old.outputs]} kept, {[_kind(o) for o in new.outputs]} now")
            continue
        for one, other in zip(old.outputs, new.outputs, strict=True):
            if "image/png" in one.get("data", {}):
                said += [f"{where}: {text}" for text in _seen(one.data["image/png"], other.data["image/png"])]
            else:
                said += [f"{where}: {text}" for text in _told(_text(one), _text(other))]
    return said


def _kind(output):
    if output.output_type == "stream":
        return output.name
    return "picture" if "image/png" in output.data else "text"


def _text(output):
    return output.text if output.output_type == "stream" else output.data.get("text/plain", "")


def _words(markup):
    """The text of a table in HTML, for objects that have no other: a line a row."""
    rows = re.sub(r"<style.*?</style>", "", markup, flags=re.DOTALL).split("</tr>")
    lines = [" ".join(html.unescape(re.sub(r"<[^>]*>", " ", row)).split()) for row in rows]
    return "\n".join(line for line in lines if line)


def _told(old, new):
    """Differences of words, then of numbers."""
    old, new = (OF_THE_MACHINE.sub("…", text) for text in (old, new))
    words = [re.sub(r"\s+|-{2,}", " ", NUMBER.sub("#", text)).strip() for text in (old, new)]
    if words[0] != words[1]:
        at = next((i for i, (a, b) in enumerate(zip(*words, strict=False)) if a != b), min(map(len, words)))
        return [f"kept {words[0][max(at - 30, 0) : at + 50]!r}, now {words[1][max(at - 30, 0) : at + 50]!r}"]
    pairs = zip(NUMBER.findall(old), NUMBER.findall(new), strict=True)
    return [f"kept {a}, now {b}" for a, b in pairs if not _near(a, b)]


def _near(a, b):
    """Whether two printed numbers are within half a per cent, or within one of the last digit printed."""
    x, y = (float(text.replace(",", "")) for text in (a, b))
    mantissa, _, exponent = a.lower().partition("e")
    last = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    return abs(x - y) <= max(0.005 * abs(x), 1.001 * last if "." in mantissa else 0.0)


def _seen(old, new):
    """Differences of two pictures, coarsely: fonts and versions of matplotlib move a pixel here and there."""
    old, new = picture(old), picture(new)
    if any(abs(a - b) > 0.03 * a for a, b in zip(old.size, new.size, strict=True)):
        return [f"a picture of {old.size} pixels kept, of {new.size} now"]
    shape = [max(side // CELL_PX, 1) for side in old.size]
    a, b = (np.asarray(image.resize(shape, Image.Resampling.BOX), dtype=int) for image in (old, new))
    drawn = ((a < 250) | (b < 250)).any(axis=2)
    share = float((abs(a - b).max(axis=2) > SHADE).sum() / max(drawn.sum(), 1))
    return [f"a picture differs in {share:.0%} of what is drawn"] if share > DIFFERENT else []


def main(arguments):
    """Run notebooks; write or compare. Returns the exit status."""
    check = "--check" in arguments
    chosen = names([argument for argument in arguments if argument != "--check"])
    stale = 0
    for path in chosen:
        begun = time.perf_counter()
        fresh = kept(run(path))
        said = differences(read(path), fresh)
        size_kB = len(nbformat.writes(fresh).encode()) / 1e3
        took_s = time.perf_counter() - begun
        print(f"{path.stem:24} {took_s:5.1f} s {size_kB:5.0f} kB, {len(said)} differences", flush=True)
        print("".join(f"    {text}\n" for text in said), end="")
        stale += bool(said)
        if not check:
            nbformat.write(fresh, path)
    return int(check and stale > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
