"""What mypy has to know of controllers: each row of the table `params` is an attribute, a number of its default's type.

Used on the controllers of this package alone (`[tool.mypy]` in pyproject.toml), which it imports to read their tables.
"""

from collections.abc import Callable
from importlib import import_module

from mypy.nodes import MDEF, SymbolTableNode, Var
from mypy.plugin import ClassDefContext, Plugin

from cctrace.cc.base import Controller, param_fields


def declare_parameters(context: ClassDefContext) -> None:
    """Give a class the attributes that its table of parameters names."""
    module, _, name = context.cls.fullname.rpartition(".")
    cls = getattr(import_module(module), name) if module.startswith("cctrace.cc.") else None
    if not (isinstance(cls, type) and issubclass(cls, Controller)):
        return
    for field, parameter in param_fields(cls).items():
        if field not in context.cls.info.names:
            kind = type(cls.params[parameter].default).__name__
            variable = Var(field, context.api.named_type(f"builtins.{kind}"))
            variable.info = context.cls.info
            context.cls.info.names[field] = SymbolTableNode(MDEF, variable)


class Parameters(Plugin):
    """Declares the parameters of every class that extends a class of `cctrace.cc`."""

    def get_base_class_hook(self, fullname: str) -> Callable[[ClassDefContext], None] | None:
        """Return what is done for a class whose base is called so."""
        return declare_parameters if fullname.startswith("cctrace.cc.") else None


def plugin(version: str) -> type[Plugin]:
    """Return the plugin, as mypy asks for it."""
    return Parameters
