"""A headless Chromium that tests talk to over a pipe, with the DevTools protocol: no driver, no port, no network."""

import base64
import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium")
_FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
_FLAGS += ["--disable-background-networking", "--disable-component-update", "--hide-scrollbars"]
_FLAGS += ["--force-device-scale-factor=1", "--remote-debugging-pipe"]
IN_A_BROWSER = [
    pytest.mark.external,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium: make check-external installs it"),
]


class Browser:
    """One page of a browser.

    Attributes
    ----------
    complaints : list of str
        Errors and warnings of the console, exceptions of scripts.
    requests : list of str
        Addresses that the page asked for, its own and those of `data:` left out.
    """

    def __init__(self, folder, width=1280, height=1000):
        self.complaints, self.requests, self._ids, self._session = [], [], itertools.count(1), None
        ends = [*os.pipe(), *os.pipe()]
        pipes = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
        to_browser, self._write, self._read, from_browser = pipes
        for end in ends:
            os.close(end)
        command = [CHROMIUM, *_FLAGS, f"--user-data-dir={folder / 'profile'}", f"--window-size={width},{height}"]
        # The protocol is spoken on the file descriptors 3 and 4.
        self._process = subprocess.Popen(
            command,
            preexec_fn=lambda: (os.dup2(to_browser, 3), os.dup2(from_browser, 4)),
            pass_fds=(3, 4),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)

    def call(self, method, timeout=300, **params):
        """Call a method of the protocol and return its result."""
        number = next(self._ids)
        message = {"id": number, "method": method, "params": params}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next(timeout)
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def _next(self, timeout):
        end = time.monotonic() + timeout
        while b"\0" not in self._buffer:
            assert select.select([self._read], [], [], max(0.0, end - time.monotonic()))[0], "the browser is silent"
            part = os.read(self._read, 1 << 20)
            assert part, "the browser has ended"
            self._buffer += part
        line, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(line)
        self._note(message.get("method"), message.get("params", {}))
        return message

    def _note(self, method, params):
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"].get("exception", params).get("description", params)))
        elif method == "Log.entryAdded":
            self.complaints.append(params["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(params["args"]))
        elif method == "Network.requestWillBeSent":
            url = params["request"]["url"]
            if not url.startswith(("data:", "about:", "blob:")):
                self.requests.append(url)

    def open(self, file):
        """Open a file and wait until it has drawn; return how many seconds that took."""
        started = time.monotonic()
        self.call("Page.navigate", url=f"file://{file}")
        self.evaluate(
            "new Promise((done) => document.readyState === 'complete' ? done() : addEventListener('load', done))"
        )
        self.evaluate("window.cctrace?.ready?.then(() => true) ?? true")
        page = str(file).partition("#")[0]
        self.requests = [url for url in self.requests if url != f"file://{page}"]
        return time.monotonic() - started

    def evaluate(self, expression):
        """Return the value of an expression of the page's script, waiting for promises."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def until(self, condition):
        """Wait until a condition of the page's script holds; `call` gives up when it never does."""
        self.evaluate(
            f"new Promise((done) => (function look() {{ {condition} ? done(true) : setTimeout(look, 10); }})())"
        )

    def barriers(self):
        """Return what axe-core finds in the page: [rule and element]; the test is skipped where it is not installed."""
        found = find_spec("axe_core_python")
        if found is None:
            pytest.skip("axe-core is not installed")
        self.evaluate((Path(found.origin).parent / "axe.min.js").read_text("utf-8") + "; true")
        return self.evaluate("axe.run().then((r) => r.violations.map((v) => `${v.id}: ${v.nodes[0].html}`))")

    def drag(self, start, end):
        """Press the mouse at a place of the window, (x, y), move it to another and let go."""
        self._mouse("mousePressed", *start)
        self._mouse("mouseMoved", *((a + b) / 2 for a, b in zip(start, end, strict=True)))
        self._mouse("mouseMoved", *end)
        self._mouse("mouseReleased", *end)

    def point(self, x, y):
        """Move the mouse there."""
        self._mouse("mouseMoved", x, y, button="none")

    def turn(self, x, y, by, modifiers=0):
        """Turn the wheel there; `modifiers` 8 holds Shift."""
        self._mouse("mouseWheel", x, y, deltaX=0, deltaY=by, modifiers=modifiers)

    def _mouse(self, kind, x, y, button="left", **more):
        count = {"clickCount": 1} if kind in ("mousePressed", "mouseReleased") else {}
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, **count, **more)

    def press(self, key):
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, text=key if len(key) == 1 else "")

    def screenshot(self, file, whole=False):
        """Write what is seen, or the whole page, as PNG."""
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(picture["data"]))
