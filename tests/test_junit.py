"""JUnit XML is well formed whatever a name holds, and says of each case whether it failed."""

from xml.etree import ElementTree

from cctrace.junit import Case, junit


def test_failures_and_skipped_cases_are_counted_and_quoted():
    cases = [Case("a", 0.5), Case("b", failure="too slow\nby 3 ms"), Case("c", skipped="not exercised")]
    suite = ElementTree.fromstring(junit("suite", cases))
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    assert suite[1][0].get("message") == "too slow"
    assert suite[1][0].text == "too slow\nby 3 ms"
    assert suite[2][0].tag == "skipped"


def test_names_that_xml_cannot_hold_are_written_out():
    suite = ElementTree.fromstring(junit("a\x1b<b>&\udc80", [Case("\x00 ]]>", failure="\x07")]))
    assert suite.get("name") == "a\\x1b<b>&\\x80"
    assert suite[0].get("name") == "\\x00 ]]>"
