"""Where the tests find what they read."""

from pathlib import Path

TESTS = Path(__file__).parent
REPOSITORY = TESTS.parent
DOCS = REPOSITORY / "docs"
GOLDEN = TESTS / "golden"
RECORDINGS = TESTS / "recordings"
