"""`cctrace verify`: golden vectors through the controllers, every recorded column compared."""

import click

from cctrace.cli.arguments import paths
from cctrace.cli.common import command_options, echo, print_json, print_table, progress


@click.command(short_help="Replay golden vectors, compare every column.")
@paths("vectors", "VECTOR...", folders=True)
@click.option("--interpreted", is_flag=True, help="Run the controllers as Python classes, not compiled.")
@command_options()
def verify(vectors: tuple[str, ...], interpreted: bool, as_json: bool) -> int:
    """Replay golden vectors and compare every recorded output and state column.

    VECTOR is a .parquet file or a folder of them; the name of its folder names the controller. The exit status is 1 if
    a row differs.
    """
    from cctrace.replaying import vectors as golden

    with progress("verifying"):
        result = golden.verify(vectors, mode="interpreted" if interpreted else "compiled")
    if as_json:
        print_json(result)
    else:
        keys = ("path", "variant", "rows", "mismatching_rows")
        words = "row {row}, {column}: expected {expected}, got {got}"
        rows = [
            (*(vector[key] for key in keys), words.format(**vector["first"]) if vector["first"] else "")
            for vector in result["vectors"]
        ]
        print_table(("vector", "controller", "rows", "mismatching", "first mismatch"), rows)
        echo(f"{result['files']} files, {result['rows']} rows, {result['mismatching_rows']} mismatching")
    return 1 if result["mismatching_rows"] else 0
