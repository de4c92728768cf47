"""A headless Chromium, where one is installed: what it makes of a page, in how much time, and how that looks.

It is driven through two pipes (--remote-debugging-pipe): messages of the Chrome DevTools Protocol, JSON that ends in a zero byte.
"""

from __future__ import annotations

import base64
import json
import os
import shlex
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run")


def find_browser() -> str | None:
    """The first that is installed."""
    return next((found for name in _NAMES if (found := shutil.which(name))), None)


class BrowserError(Exception):
    """The browser ended, or a page was not drawn in time."""


class Browser:
    """One browser with one page. `console` has what pages wrote there, and their uncaught errors."""

    def __init__(self, executable: str, width: int = 1240, height: int = 900) -> None:
        # Its processes may write there for a moment after the end. A short name: it makes sockets below.
        self._profile = tempfile.TemporaryDirectory(prefix="ks-", ignore_cleanup_errors=True)
        its_input, self._write = os.pipe()
        self._read, its_output = os.pipe()
        command = (
            executable,
            *_FLAGS,
            "--remote-debugging-pipe",
            f"--window-size={width},{height}",
            f"--user-data-dir={self._profile.name}",
        )
        # The two ends have to be the descriptors 3 and 4 of the browser.
        script = f"exec {shlex.join(command)} 3<&{its_input} 4>&{its_output} 2>/dev/null"
        self._process = subprocess.Popen(
            ["bash", "-c", script],
            pass_fds=(its_input, its_output),
            env=os.environ | {"TMPDIR": self._profile.name},
        )
        os.close(its_input)
        os.close(its_output)
        self._n_asked = 0
        self._unread = b""
        self.console: list[str] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = ""
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log"):
            self._ask(f"{domain}.enable")

    def open(self, path: Path, mark: str, limit_s: float = 60.0) -> dict[str, str]:
        """Show a file; the data attributes of its root, once it has the one named `mark`. Raises BrowserError."""
        self.console = []
        self._ask("Page.navigate", url=path.resolve().as_uri())
        ends_s = time.monotonic() + limit_s
        while time.monotonic() < ends_s:
            marks = self.evaluate("({...document.documentElement.dataset})") or {}
            if mark in marks or "error" in marks:
                return {str(k): str(v) for k, v in marks.items()}
            time.sleep(0.02)
        raise BrowserError(f"{path} was not drawn within {limit_s:.0f} s: {self.console}")

    def text(self) -> str:
        """The document as it is now."""
        return str(self.evaluate("document.documentElement.outerHTML"))

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        found = self._ask("Runtime.evaluate", expression=expression, returnByValue=True)
        return found["result"].get("value")

    def picture(self, file: Path, box: tuple[int, int, int, int]) -> None:
        """Write the part (left, top, width, height) of the page as a PNG."""
        clip = dict(zip(("x", "y", "width", "height"), box, strict=True), scale=1)
        found = self._ask("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(found["data"]))

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)
        self._profile.cleanup()

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, t: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, method: str, **parameters: Any) -> Any:
        self._n_asked += 1
        message: dict[str, Any] = {"id": self._n_asked, "method": method, "params": parameters}
        if getattr(self, "_session", ""):
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._n_asked:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']}")
                return answer["result"]
            self._hear(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            part = os.read(self._read, 1 << 20)
            if not part:
                raise BrowserError("the browser has ended")
            self._unread += part
        message, _, self._unread = self._unread.partition(b"\0")
        return dict(json.loads(message))

    def _hear(self, event: dict[str, Any]) -> None:
        told = event.get("params", {})
        match event.get("method"):
            case "Runtime.consoleAPICalled":
                self.console.append(" ".join(str(a.get("value")) for a in told["args"]))
            case "Runtime.exceptionThrown":
                self.console.append(str(told["exceptionDetails"]))
            case "Log.entryAdded":
                self.console.append(str(told["entry"]["text"]))
