"""Errors of the library in the words of a command: `floor_us is 6000` is about what the user gave as `--floor 6ms`."""

import re

import click
from click.core import ParameterSource

from cctrace.units import format_rate, format_time

_UNIT = re.compile(r"_(ns|us|s|bps)$")
_TEXTS = {"ns": format_time, "us": lambda us: format_time(us * 1e3), "s": lambda s: format_time(s * 1e9),
          "bps": format_rate}  # fmt: skip
_BEGIN = re.compile(r"\w+(?==| is -?\d)")
_WITH_UNIT = re.compile(r"\b([a-z]\w*)_(ns|us|s|bps)\b(?:(=| is )(-?\d[\d.]*(?:e[+-]?\d+)?))?")


def in_options(text: str, context: click.Context) -> str:
    """Return an error's text with a command's options for the parameters that it begins with, or that have a unit.

    Only options that the user gave are named: a parameter's value may as well come from a file.
    """
    given = {  # "rate_" of rate_bps, which is not the text `rate`
        _UNIT.sub("_", option.name or ""): max(option.opts, key=len)
        for option in context.command.params
        if isinstance(option, click.Option)
        and context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
    }

    def with_unit(found: re.Match[str]) -> str:
        name, unit, joint, number = found.groups()
        if option := given.get(f"{name}_"):
            return option + (joint + _TEXTS[unit](float(number)) if number else "")
        return found[0]

    if begin := _BEGIN.match(text):
        text = given.get(begin[0], begin[0]) + text[begin.end() :]
    return _WITH_UNIT.sub(with_unit, text)
