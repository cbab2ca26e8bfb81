"""What the code cites, the documentation lists."""

import re
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
KEY = re.compile(r"\[([A-Z][A-Za-z]+v?\d{2,4}|RFC ?\d+)\]")


def test_every_source_that_the_code_cites_stands_in_the_references():
    listed = set(KEY.findall((REPOSITORY / "docs" / "references.md").read_text(encoding="utf-8")))
    files = [*REPOSITORY.glob("cctrace/**/*.py"), *REPOSITORY.glob("tests/test_*.py")]
    cited = {(key, file.name) for file in files for key in KEY.findall(file.read_text(encoding="utf-8"))}
    assert {(key, file) for key, file in cited if key.replace("RFC ", "RFC") not in listed} == set()
