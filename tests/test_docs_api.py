"""Every public name says what it takes, gives and refuses, shows an example, and stands on a page of the API."""

import importlib
import inspect
import re

import pytest

import cctrace as cct
from tests.places import DOCS

DIRECTIVE = re.compile(r"\.\. auto(\w+):: ([\w.]+)\n((?:   :.*\n)*)")


def names_of(module):
    listed = getattr(module, "__all__", None)
    defined = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
    return listed or [name for name in defined if not name.startswith("_")]


def public_names():
    """Every function and class of `cctrace` and of its public packages: {dotted name: object}."""
    found = {}
    for name in cct.__all__:
        value = getattr(cct, name)
        if inspect.ismodule(value):
            found |= {f"{value.__name__}.{one}": getattr(value, one) for one in names_of(value)}
        else:
            found[f"cctrace.{name}"] = value
    return {name: value for name, value in found.items() if callable(value)}


def documented():
    """What the pages generate sections of, by identity."""
    found = []
    for page in [*DOCS.glob("api/*.rst"), DOCS / "equations.rst"]:
        for kind, name, options in DIRECTIVE.findall(page.read_text(encoding="utf-8")):
            if kind == "module":
                assert ":members:" in options
                module = importlib.import_module(name)
                found += [getattr(module, one) for one in names_of(module)]
            else:
                where, _, last = name.rpartition(".")
                found.append(getattr(importlib.import_module(where), last))
    return found


def parameters_of(value):
    if inspect.isclass(value) and issubclass(value, BaseException):
        return []
    return [name for name in inspect.signature(value).parameters if name != "self"]


def test_every_public_name_has_a_section_of_the_api():
    sections = {id(value) for value in documented()}
    assert [name for name, value in public_names().items() if id(value) not in sections] == []


@pytest.mark.parametrize("name", public_names())
def test_a_public_name_documents_its_arguments_and_shows_an_example(name):
    value = public_names()[name]
    text = inspect.getdoc(value)
    assert ">>> " in text, "no example, which `--doctest-modules` would run"
    taken = parameters_of(value)
    if inspect.isclass(value) and "Attributes\n-" in text:  # a result, which nobody makes by hand
        taken = []
    if len(taken) > 1:
        assert "Parameters\n-" in text
    if inspect.isfunction(value):
        assert "Returns\n-" in text or text.startswith(("Return", "Draw"))  # a figure is what "Draw" returns
    section = text.partition("Parameters\n-")[2].partition("\n\nR")[0]
    assert [one for one in taken if len(taken) > 1 and not re.search(rf"\b{one}\b", section)] == []


def test_whatever_has_a_section_shows_an_example():
    shown = {f"{one.__module__}.{one.__qualname__}": inspect.getdoc(one) or "" for one in documented() if callable(one)}
    assert [name for name, text in shown.items() if ">>> " not in text] == []


@pytest.mark.parametrize("value", [one for one in documented() if inspect.isclass(one)])
def test_every_public_method_of_a_class_with_a_page_is_described(value):
    own = {name: one for name, one in vars(value).items() if not name.startswith("_")}
    called = {name: one for name, one in own.items() if inspect.isfunction(inspect.unwrap(getattr(one, "fget", one)))}
    assert [name for name, one in called.items() if not inspect.getdoc(one)] == []
