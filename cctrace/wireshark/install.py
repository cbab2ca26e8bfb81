"""Put the plug-in into Wireshark's personal folder of plug-ins."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from cctrace.files import replacing

PLUGIN = Path(__file__).parent / "cctrace.lua"
_LINE = "Personal Lua Plugins:"  # of `tshark -G folders`
_PATIENCE_S = 20.0


def plugin_folder() -> Path:
    """Return Wireshark's personal folder of Lua plug-ins, from tshark, else its default (User's Guide, B.2)."""
    tshark = shutil.which("tshark")
    if tshark:
        try:
            command = [tshark, "-G", "folders"]
            found = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False).stdout
        except (OSError, subprocess.TimeoutExpired):
            found = ""
        for line in found.splitlines():
            if line.startswith(_LINE):
                return Path(line.removeprefix(_LINE).strip())
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA", "~")).expanduser() / "Wireshark" / "plugins"
    return Path("~/.local/lib/wireshark/plugins").expanduser()


def install(folder: str | os.PathLike[str] | None = None) -> Path:
    """Copy the plug-in into a folder, and return the file.

    `folder`: made if there is none; default: `plugin_folder()`. Raises `OSError` if it cannot be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     install(folder).name
    'cctrace.lua'
    """
    target = (plugin_folder() if folder is None else Path(folder)) / PLUGIN.name
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as file:
        shutil.copyfile(PLUGIN, file)
    return target
