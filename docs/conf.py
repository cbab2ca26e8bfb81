"""How the documentation site is built: `make docs`, into docs/_build; a warning is an error."""

import inspect
import re
import runpy
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from docutils.nodes import SkipNode, literal
from latex2mathml.converter import convert
from pygments.lexers.special import TextLexer
from sphinx.addnodes import pending_xref

import cctrace

project = "cctrace"
author = "the cctrace authors"
version = release = cctrace.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "jupyter_execute", "**/.ipynb_checkpoints"]
nb_execution_mode = "off"  # the outputs that are kept; the tests compare them with what the notebooks say now
html_math_renderer = "mathml"
html_theme = "furo"
html_title = "cctrace"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = html_copy_source = False
html_show_search_summary = False  # read from disk, a page may not fetch the pages it found
default_role = "code"  # single backquotes name things of Python, as numpydoc has it
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autosummary_generate = False  # it only lists: every name stands on the page of its subject
napoleon_google_docstring = False
napoleon_use_rtype = False
# Pages point to files of the repository, which are not part of the site; docstrings cite by key, see references.md.
# A type that a docstring calls `path` is no attribute of that name.
suppress_warnings = ["myst.xref_missing", "ref.citation", "ref.ref", "ref.python"]


def setup(app):
    """Bring the notebooks; read docstrings and diagrams as they are meant."""
    _bring_notebooks(Path(app.srcdir))
    _write_if_new(Path(app.srcdir) / "commands.md", runpy.run_path(f"{app.srcdir}/make_commands.py")["page"]())
    app.add_html_math_renderer("mathml", (_math_in_line, None), (_math_in_lines, None))
    app.connect("autodoc-process-docstring", _keys_as_text)
    app.connect("autodoc-process-signature", _arrays_as_written)
    app.connect("doctree-read", _names_as_links)
    app.connect("build-finished", _for_all_readers)
    app.add_lexer("mermaid", TextLexer)  # state diagrams are shown as their text


_ALIAS = re.compile(r"~?numpy\.ndarray\[tuple\[(?:~?typing\.)?Any, \.\.\.\], ~?numpy\.dtype\[([^\[\]]+)\]\]")


def _arrays_as_written(app, what, name, obj, options, signature, returned):
    """Write ``NDArray[float64]``, as the code does, for what Python makes of it; equations take numbers as well."""
    if what == "function" and name.startswith("cctrace.analytic."):
        own = inspect.signature(obj)
        plain = [parameter.replace(annotation=parameter.empty) for parameter in own.parameters.values()]
        return str(own.replace(parameters=plain, return_annotation=own.empty)), None
    return tuple(text and _ALIAS.sub(r"~numpy.typing.NDArray[\1]", text) for text in (signature, returned))


def _names_as_links(app, doctree):
    """Let `cct.read(...)` in any page lead to its section of the API; what has none stays text."""
    for node in list(doctree.findall(literal)):
        name = re.match(r"(?:cct|cctrace)((?:\.\w+)+)", node.astext())
        if name and not isinstance(node.parent, pending_xref):
            link = pending_xref(
                "", refdomain="py", reftype="obj", reftarget=f"cctrace{name[1]}", refdoc=app.env.docname
            )
            node.replace_self(link)
            link += node


def _bring_notebooks(docs):
    """Copy the notebooks beneath the pages, with links as from there."""
    target = docs / "notebooks"
    target.mkdir(exist_ok=True)
    kept = docs.glob("../notebooks/*.ipynb")
    texts = {path.name: path.read_text("utf-8").replace("](../docs/", "](../") for path in kept}
    for old in target.glob("*.ipynb"):
        if old.name not in texts:
            old.unlink()
    for name, text in texts.items():
        _write_if_new(target / name, text)


def _write_if_new(page, text):
    """Write a page that is made here; what is unchanged is not read again."""
    if not page.exists() or page.read_text("utf-8") != text:
        page.write_text(text, "utf-8")


def _math_in_line(writer, node):
    """Formulas as MathML: the site asks nobody for a script."""
    writer.body.append(convert(node.astext()))
    raise SkipNode


def _math_in_lines(writer, node):
    writer.body.append(f'<div class="math" tabindex="0">{convert(node.astext(), display="block")}</div>')
    raise SkipNode


# What the theme leaves out for those who read by keyboard or hear the page; axe-core asks for it.
_READERS = (
    ('role="heading">', 'role="heading" aria-level="2">'),
    ("<pre>", '<pre tabindex="0">'),
    ('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'),
    ('<div class="output text_html">', '<div tabindex="0" class="output text_html">'),
    ('<aside class="sidebar-drawer">', '<aside class="sidebar-drawer" aria-label="Pages">'),
    ('<aside class="toc-drawer', '<aside aria-label="On this page" class="toc-drawer'),
    ('<div class="view-this-page">', '<div class="view-this-page" role="region" aria-label="Source">'),
)


def _for_all_readers(app, exception):
    for page in Path(app.outdir).rglob("*.html") if exception is None else ():
        text = old = page.read_text("utf-8")
        for before, after in _READERS:
            text = text.replace(before, after)
        if text != old:
            page.write_text(text, "utf-8")


def _keys_as_text(app, what, name, obj, options, lines):
    """Citations such as ``[Bi23]_`` are keys of references.md, not of a reST page."""
    lines[:] = [re.sub(r"\[([A-Z][A-Za-z]+\d+[a-z]?)\]_", r"[\1]", line) for line in lines]
