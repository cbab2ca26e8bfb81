"""How the documentation site is built: `make docs`, into docs/_build; a warning is an error."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pygments.lexers.special import TextLexer

import cctrace

project = "cctrace"
author = "the cctrace authors"
version = release = cctrace.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build"]
html_theme = "alabaster"
html_theme_options = {"description": "TCP congestion control: explain, replay, predict", "page_width": "1100px"}
default_role = "code"  # single backquotes name things of Python, as numpydoc has it
autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_google_docstring = False
napoleon_use_rtype = False
# Pages point to files of the repository, which are not part of the site; docstrings cite by key, see references.md.
suppress_warnings = ["myst.xref_missing", "ref.citation", "ref.ref"]


def setup(app):
    """Read docstrings and diagrams as they are meant."""
    app.connect("autodoc-process-docstring", _keys_as_text)
    app.add_lexer("mermaid", TextLexer)  # state diagrams are shown as their text


def _keys_as_text(app, what, name, obj, options, lines):
    """Citations such as ``[Bi23]_`` are keys of references.md, not of a reST page."""
    lines[:] = [re.sub(r"\[([A-Z][A-Za-z]+\d+[a-z]?)\]_", r"[\1]", line) for line in lines]
