"""The frame of every page: self-contained, and closed to foreign content.

The content security policy names the page's own style sheet and script by their hashes: anything else in the page,
from the name or the contents of a file, would neither run nor be loaded. A link leads to a file beside the page,
whatever that file's name.

Sources: [CSP3] W3C Content Security Policy Level 3, 2.3.1 (hashes), 8.2 (strict-dynamic); [RFC3986] 2.1, 4.2.
"""

import base64
import hashlib
from urllib.parse import quote

from cctrace.display import escape


def document(title: str, sheet: str, body: str, script: str, data: str = "", loads: bool = False) -> str:
    """Return a page as one string of HTML.

    `sheet`: its style sheet; there is no other, since the policy does not allow ``style`` attributes. `body`: HTML;
    what comes from files must have been through `cctrace.display.escape`. `script`: runs in strict mode and in a scope
    of its own. `data`: JSON that the script finds in the element ``data``; "" for none. `loads`: whether the script
    loads further ones, from files beside the page.
    """
    script = f'"use strict";\n(() => {{\n{script}}})();\n'
    data_element = f'<script type="application/json" id="data">{data}</script>\n' if data else ""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy(sheet, script, loads)}">
<title>{escape(title)}</title>
<style>{sheet}</style>
</head>
<body>
{body}
{data_element}<script>{script}</script>
</body>
</html>
"""


def policy(sheet: str, script: str, loads: bool = False) -> str:
    """Return the content security policy of a page with this style sheet and this script, and no others.

    >>> policy("p { margin: 0 }", "").split("; script")[0]
    "default-src 'none'; style-src 'sha256-7IWhgxoOGTB5NQzjGk9OPt0FwhVeBvZGoWgF9xLLh8c='"
    """
    trusted = " 'strict-dynamic'" if loads else ""  # what a script of the page adds is trusted like itself
    return (
        f"default-src 'none'; style-src {_hash(sheet)}; script-src {_hash(script)}{trusted}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def link(*path: str, fragment: str = "") -> str:
    """Return the address of a file, relative to the page that links to it.

    `path`: names of folders and of the file, from the page's folder on; never "..". `fragment`: identifier within the
    page that is linked to. Raises `ValueError` if a name would lead out of the page's folder.

    >>> link("javascript:alert(1)", "report.html", fragment="flow0"), link("50% #1?", "report.html")
    ('./javascript%3Aalert%281%29/report.html#flow0', './50%25%20%231%3F/report.html')
    """
    if any(name in ("", ".", "..") or "/" in name for name in path):
        raise ValueError(f"{path}: not the names of folders and a file below the page")
    address = "/".join(quote(name, safe="") for name in path)
    return f"./{address}" + (f"#{quote(fragment, safe='')}" if fragment else "")
