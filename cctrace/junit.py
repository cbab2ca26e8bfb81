"""JUnit XML, which continuous integration reads: what `conform` and `check` write with ``--junit``."""

from collections.abc import Iterable
from typing import NamedTuple
from xml.etree import ElementTree

from cctrace.display import visible


class Case(NamedTuple):
    """One test case: it failed if `failure` is a text, was skipped if `skipped` is one, and passed otherwise."""

    name: str
    seconds: float = 0.0
    failure: str | None = None
    skipped: str | None = None


def junit(suite_name: str, cases: Iterable[Case]) -> str:
    """Return test results as JUnit XML.

    `suite_name`: what was tested; also the class of every case. `cases`: the first line of `failure` and of `skipped`
    is the message that CI systems list.

    >>> print(junit("goodput", [Case("above 10 Mbit/s", 0.25), Case("p95 < 50 ms", failure="p95 is 71 ms")]))
    <?xml version='1.0' encoding='utf-8'?>
    <testsuite name="goodput" tests="2" failures="1" skipped="0" time="0.250">
      <testcase classname="goodput" name="above 10 Mbit/s" time="0.250" />
      <testcase classname="goodput" name="p95 &lt; 50 ms" time="0.000">
        <failure message="p95 is 71 ms">p95 is 71 ms</failure>
      </testcase>
    </testsuite>
    """
    cases = list(cases)
    suite = ElementTree.Element(
        "testsuite",
        name=visible(suite_name),
        tests=str(len(cases)),
        failures=str(sum(case.failure is not None for case in cases)),
        skipped=str(sum(case.failure is None and case.skipped is not None for case in cases)),
        time=f"{sum(case.seconds for case in cases):.3f}",
    )
    for case in cases:
        element = ElementTree.SubElement(
            suite, "testcase", classname=visible(suite_name), name=visible(case.name), time=f"{case.seconds:.3f}"
        )
        kind, text = ("failure", case.failure) if case.failure is not None else ("skipped", case.skipped)
        if text is not None:
            printable = visible(text)
            ElementTree.SubElement(element, kind, message=printable.partition("\n")[0]).text = printable
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True).decode()
