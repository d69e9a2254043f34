"""A headless Chromium, driven through chromedriver by the W3C WebDriver protocol; for tests and benchmarks.

It has a directory of its own, resolves no name, and is removed with its driver.
"""

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)
_DEADLINE = 120.0


def missing() -> str | None:
    """Return what is not there, or None."""
    lacking = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"no {' and no '.join(lacking)} here (Debian: chromium, chromium-driver)" if lacking else None


class Browser:
    """One tab."""

    def __init__(self, session: str) -> None:
        self._session = session

    def open(self, page: Path) -> None:
        """Load a file and wait until it has loaded."""
        _ask("POST", f"{self._session}/url", {"url": page.absolute().as_uri()})

    def run(self, script: str, *arguments: object) -> Any:
        """Return what the script returns."""
        return _ask("POST", f"{self._session}/execute/sync", {"script": script, "args": arguments})

    def wait(self, script: str, *, deadline: float = _DEADLINE) -> float:
        """Wait until the script returns something true; return the seconds that took."""
        began = time.monotonic()
        while not self.run(script):
            if time.monotonic() - began > deadline:
                raise TimeoutError(f"not within {deadline:g} s: {script}")
            time.sleep(0.02)
        return time.monotonic() - began

    def command(self, name: str, **parameters: object) -> Any:
        """Run a command of the DevTools protocol."""
        body = {"cmd": name, "params": parameters}
        return _ask("POST", f"{self._session}/goog/cdp/execute", body)

    def look(self, width: int, *, height: int = 900, dark: bool = False, media: str = "") -> None:
        """Set the window's width and the reader's colour scheme; ``media`` may be ``print``."""
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def picture(self, path: Path) -> None:
        """Write a PNG of the whole page."""
        taken = self.command("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(taken["data"]))

    def printed(self, path: Path) -> None:
        """Write the page as it prints (A4)."""
        made = self.command("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, printBackground=False)
        path.write_bytes(base64.b64decode(made["data"]))

    def console(self) -> list[str]:
        """Return the console's entries since the last call."""
        entries = _ask("POST", f"{self._session}/se/log", {"type": "browser"})
        return [f"{entry['level']}: {entry['message']}" for entry in entries]


@contextmanager
def browser() -> Iterator[Browser]:
    """Start a browser and its driver; both are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="storagetest-browser-", ignore_cleanup_errors=True) as scratch:
        driver = subprocess.Popen(
            ["chromedriver", "--port=0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            env={**os.environ, "HOME": scratch},
        )
        try:
            root = f"http://127.0.0.1:{_port(driver)}/session"
            options = {
                "binary": shutil.which("chromium"),
                "args": [*_ARGUMENTS, f"--user-data-dir={scratch}/data"],
            }
            wanted = {
                "goog:chromeOptions": options,
                "goog:loggingPrefs": {"browser": "ALL"},
                "timeouts": {"script": 120_000, "pageLoad": 120_000},
            }
            made = _ask("POST", root, {"capabilities": {"alwaysMatch": wanted}})
            session = f"{root}/{made['sessionId']}"
            yield Browser(session)
            _ask("DELETE", session)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)  # of the driver and its browser
            driver.wait(timeout=20)
            if driver.stdout is not None:
                driver.stdout.close()


def _port(driver: subprocess.Popen[str]) -> int:
    assert driver.stdout is not None
    for line in driver.stdout:
        found = re.search(r"successfully on port (\d+)", line)
        if found:
            return int(found[1])
    raise RuntimeError(f"chromedriver ended with {driver.wait(timeout=20)} before it named its port")


def _ask(method: str, url: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_DEADLINE) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        lines: Sequence[str] = str(json.load(error)["value"].get("message")).splitlines()
        raise RuntimeError(f"{url.rpartition('/')[2]}: {lines[0]}") from None
