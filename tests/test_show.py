"""`cctrace variants show` prints a controller in the order in which it runs, from wherever it is defined."""

import ast
import importlib
import inspect
import json
import pkgutil
import sys
import textwrap

import pytest

from cctrace import cc, cli
from cctrace.cc import REGISTRY, controller
from cctrace.cc.bbr2022 import BBR2022
from cctrace.cc.show import resolved


def below(steps, name):
    """Return the names of what the first step of that name calls itself, in order."""
    at = next(k for k, step in enumerate(steps) if step["step"] == name)
    depth = steps[at]["depth"]
    under = steps[at + 1 :]
    end = next((k for k, step in enumerate(under) if step["depth"] <= depth), len(under))
    return [step["step"] for step in under[:end] if step["depth"] == depth + 1]


def test_an_entry_point_is_followed_by_what_it_calls_in_order():
    steps = resolved("bbr2022")
    assert [step["step"] for step in steps if step["depth"] == 0][:3] == ["init", "on_ack", "ssthresh"]
    assert below(steps, "on_ack") == ["update_model", "bw", "set_pacing_rate", "set_cwnd"]
    assert below(steps, "update_model")[:2] == ["update_bw", "update_ack_aggregation"]
    # super() leads to the next class that defines the step
    assert [step["class"] for step in steps if step["step"] == "init"] == ["BBR2022", "BBR2019", "BBR2016"]


def test_a_step_names_where_it_is_defined_what_it_cites_and_its_text():
    (step,) = (step for step in resolved("bbr2022") if step["step"] == "delivery_rate")
    lines, first = inspect.getsourcelines(BBR2022.delivery_rate)
    assert (step["class"], step["file"], step["line"]) == ("BBR2022", "cctrace/cc/bbr2022.py", first)
    assert step["cites"] == ["[Linux61] net/ipv4/tcp_bbr.c bbr_update_bw"]
    assert step["source"].splitlines()[0] == lines[0].strip()
    assert step["doc"] == "Segments/us << 24 [Linux61] bbr_update_bw."


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_every_step_is_printed_once_and_belongs_to_the_class(name):
    steps = resolved(name)
    printed = [(step["file"], step["line"]) for step in steps if step["source"]]
    assert len(printed) == len(set(printed)) > 3
    cls, _ = controller(name)
    for step in steps:
        owner = next((base for base in cls.__mro__ if base.__name__ == step["class"]), None)
        assert step["step"] in vars(owner or sys.modules[f"cctrace.cc.{step['class']}"]), step
    called = {step["step"] for step in steps}
    assert {step for step, item in vars(cls).items() if inspect.isfunction(item)} <= called


def test_it_is_printed_as_a_tree_with_the_texts_behind(capsys):
    assert cli.main(["variants", "show", "reno"]) == 0
    tree, _, texts = capsys.readouterr().out.partition("\n# ")
    assert "ssthresh  (Reno)" in tree
    assert "cctrace/cc/reno.py:" in texts
    assert "def ssthresh(self, ack: Ack)" in texts
    assert cli.main(["variants", "show", "reno", "--json"]) == 0
    assert {"step", "class", "source"} <= set(json.loads(capsys.readouterr().out)[0])


def test_show_takes_one_known_controller(capsys):
    assert cli.main(["variants", "show"]) == 2
    assert "one controller" in capsys.readouterr().err
    assert cli.main(["variants", "show", "bbr4"]) == 2
    assert "no controller is called 'bbr4'" in capsys.readouterr().err


@pytest.mark.parametrize("module", [m.name for m in pkgutil.iter_modules(cc.__path__)])
def test_no_class_calls_a_step_that_only_its_subclasses_define(module):
    defined = vars(importlib.import_module(f"cctrace.cc.{module}")).values()
    for cls in [one for one in defined if inspect.isclass(one) and one.__module__ == f"cctrace.cc.{module}"]:
        for step, function in vars(cls).items():
            tree = (
                ast.parse(textwrap.dedent(inspect.getsource(function)))
                if inspect.isfunction(function)
                else ast.Module()
            )
            calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
            own = [c.attr for c in calls if isinstance(c, ast.Attribute) and ast.unparse(c.value) == "self"]
            assert [name for name in own if not hasattr(cls, name)] == [], f"{cls.__name__}.{step}"
