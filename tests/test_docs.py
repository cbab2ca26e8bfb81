"""What the code cites, the documentation lists; what the README shows, works."""

import re
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
KEY = re.compile(r"\[([A-Z][A-Za-z]+v?\d{2,4}|RFC ?\d+)\]")


def test_every_source_that_the_code_cites_stands_in_the_references():
    listed = set(KEY.findall((REPOSITORY / "docs" / "references.md").read_text(encoding="utf-8")))
    files = [*REPOSITORY.glob("cctrace/**/*.py"), *REPOSITORY.glob("tests/test_*.py")]
    cited = {(key, file.name) for file in files for key in KEY.findall(file.read_text(encoding="utf-8"))}
    assert {(key, file) for key, file in cited if key.replace("RFC ", "RFC") not in listed} == set()


def test_the_example_of_the_readme_runs(tmp_path):
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", readme, re.S)
    script = f"import sys; sys.path.insert(0, {str(REPOSITORY)!r})\n{example}"
    result = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "10.99.0.1" in result.stdout
    assert (tmp_path / "flow.png").stat().st_size > 50_000


def test_the_readme_links_only_to_files_that_exist():
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!https?:)([^)#]+)\)", readme)
    assert targets
    assert [target for target in targets if not (REPOSITORY / target).exists()] == []
