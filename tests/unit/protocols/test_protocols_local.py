"""The local protocol and the holding of things, for real on this machine."""

import errno
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from storagetest.errors import AttachError, TargetDead, WorkloadError
from storagetest.hosts import Journal, LocalHost, UndoStatus, clean
from storagetest.protocols import _acquire
from storagetest.protocols._acquire import FORCED, LEFT_ON_TARGET, WITHIN, Deadline, acquired
from storagetest.protocols.base import AttachmentKind, protocols

Local: Any = protocols.get("local")


def attach(path: Path) -> Any:
    return Local().attach(LocalHost(), Local.Options(path=str(path)))


def test_own_directory_is_made_and_removed(tmp_path: Path) -> None:
    (tmp_path / "other-user's").write_text("precious")
    before = sorted(tmp_path.iterdir())
    with attach(tmp_path) as attachment:
        own = Path(attachment.path)
        assert own.parent == tmp_path
        assert own.name.startswith("storagetest-")
        assert attachment.kind is AttachmentKind.FILESYSTEM
        assert attachment.size > 0
        assert attachment.negotiated["fstype"]
        assert attachment.mismatches == ()
        (own / "deep" / "er").mkdir(parents=True)
        (own / "deep" / "file").write_text("x")
        assert len(Journal(LocalHost()).entries()) == 1
    assert sorted(tmp_path.iterdir()) == before
    assert Journal(LocalHost()).entries() == []


def test_a_directory_has_locks_unless_the_targets_file_denies_them() -> None:
    directory = {"path": "/var/tmp"}  # an example
    assert Local().capabilities(Local.Options(**directory)) == {"filesystem", "locks"}
    assert Local().capabilities(Local.Options(**directory, lock=False)) == {"filesystem"}


def test_own_directory_inherits_no_access_control_list_and_no_set_group_id(tmp_path: Path) -> None:
    entries = ((1, 7), (2, 7), (4, 5), (0x10, 7), (0x20, 0))  # <linux/posix_acl.h>
    value = struct.pack("<I", 2) + b"".join(
        struct.pack("<HHI", tag, bits, 1234 if tag == 2 else 0xFFFFFFFF) for tag, bits in entries
    )
    tmp_path.chmod(0o2775)
    try:
        os.setxattr(tmp_path, "system.posix_acl_default", value)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        pytest.skip("no POSIX ACLs here")
    with attach(tmp_path) as attachment:
        assert Path(attachment.path).stat().st_mode & 0o7777 == 0o755
        assert not [name for name in os.listxattr(attachment.path) if "posix_acl" in name]


def test_two_never_meet(tmp_path: Path) -> None:
    with attach(tmp_path) as one, attach(tmp_path) as two:
        assert one.path != two.path


def test_it_is_removed_after_an_error_which_comes_through(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="the load broke"), attach(tmp_path) as attachment:
        raise WorkloadError("the load broke")
    assert not Path(attachment.path).exists()
    assert Journal(LocalHost()).entries() == []


def test_no_such_directory(tmp_path: Path) -> None:
    with pytest.raises(AttachError, match=r"making a directory on .* failed"), attach(tmp_path / "none"):
        pytest.fail("attached")
    assert Journal(LocalHost()).entries() == []


KILLED = """
import os, signal, sys
from storagetest.hosts import Journal, LocalHost
Journal.__init__.__defaults__ = (sys.argv[2],)
from storagetest.protocols.base import protocols
Local = protocols.get("local")
with Local().attach(LocalHost(), Local.Options(path=sys.argv[1])) as attachment:
    open(attachment.path + "/file", "w").close()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_sigkill_is_undone_by_clean(tmp_path: Path, own_journal: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), str(own_journal)], check=False)
    assert killed.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert (left / "file").exists()
    (outcome,) = clean(LocalHost(), directory=str(own_journal))
    assert outcome.result is UndoStatus.UNDONE
    assert list(tmp_path.iterdir()) == []
    assert Journal(LocalHost()).entries() == []


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"path": "/a", "device": "/dev/x"},
        {"path": "relative"},
        {"device": "sda"},
        {"path": "/a", "erase": "x"},
        {"path": "/a", "filesystem": "ext4"},
        {"device": "/dev/x", "filesystem": "vfat"},
    ],
)
def test_impossible_options(settings: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        Local.Options(**settings)


def hold(status: int, deadline: float = 10.0) -> Any:
    release = ["sh", "-c", f"echo why >&2; exit {status}"]
    return acquired(LocalHost(), "a thing", lambda _: release, target="t", deadline=Deadline(deadline))


def test_clean_release_strikes_the_entry() -> None:
    with hold(0):
        assert len(Journal(LocalHost()).entries()) == 1
    assert Journal(LocalHost()).entries() == []


@pytest.mark.parametrize(
    ("status", "error", "words", "left"),
    [
        (LEFT_ON_TARGET, AttachError, "a directory is left on the target", 0),
        (FORCED, TargetDead, "released by force", 0),
        (1, AttachError, "a thing still exists on localhost after the release .*why", 1),
    ],
)
def test_unclean_release_is_reported(status: int, error: type[Exception], words: str, left: int) -> None:
    with pytest.raises(error, match=words), hold(status):
        pass
    assert len(Journal(LocalHost()).entries()) == left


def test_release_that_hangs_is_a_dead_target_and_keeps_its_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_acquire, "MIN_RELEASE_SECONDS", 0.1)
    monkeypatch.setattr(_acquire, "_MARGIN", 0.1)
    with (
        pytest.raises(TargetDead, match="did not finish within"),
        acquired(LocalHost(), "a thing", lambda _: ["sleep", "60"], target="t", deadline=Deadline(0.2)),
    ):
        pass
    assert len(Journal(LocalHost()).entries()) == 1


def test_body_error_outranks_a_failed_release() -> None:
    with pytest.raises(WorkloadError) as caught, hold(1):
        raise WorkloadError("first")
    assert "still exists" in caught.value.__notes__[0]


def test_dead_target_outranks_the_body_error() -> None:
    with pytest.raises(TargetDead) as caught, hold(FORCED):
        raise WorkloadError("first")
    assert isinstance(caught.value.__cause__, WorkloadError)


def test_interruption_is_never_replaced() -> None:
    with pytest.raises(KeyboardInterrupt), hold(FORCED):
        raise KeyboardInterrupt


def within(*argv: str) -> subprocess.CompletedProcess[str]:
    script = WITHIN + '"$@"; status=$?; cat "$log"; exit $status'
    return subprocess.run(
        ["bash", "-c", script, "x", *argv], capture_output=True, text=True, check=False, timeout=30
    )


def slow_rm(tmp_path: Path, rounds: int) -> str:
    """Return a PATH on which rm removes 600 files in ``rounds`` runs, in each a part, and then hangs."""
    tools = tmp_path / "tools"
    tools.mkdir()
    rm = tools / "rm"
    part = 600 // rounds
    rm.write_text(
        f"""#!/bin/sh
[ "$1" = -rfv ] || exec /bin/rm "$@"
cd "$4" || exit
ls | head -n {part} | xargs /bin/rm -v
[ -n "$(ls)" ] || exec /bin/rm -rf "$4"
exec sleep 60
"""
    )
    rm.chmod(0o755)
    return f"{tools}:{os.environ['PATH']}"


@pytest.mark.parametrize(("rounds", "seconds", "status"), [(3, 60, 0), (3, 1, 124), (1000, 60, 124)])
def test_a_removal_goes_on_as_long_as_it_gets_ahead(tmp_path, monkeypatch, rounds, seconds, status) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for number in range(600):
        (tree / f"file-{number}").touch()
    monkeypatch.setenv("PATH", slow_rm(tmp_path, rounds))
    done = within("remove", "2", str(seconds), str(tree))
    assert done.returncode == status, done.stdout + done.stderr
    assert tree.exists() == bool(status)


def test_files_that_a_killed_case_left_immutable_are_removed(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "deep").mkdir(parents=True)
    flagged = {tree / "immutable": "+i", tree / "append-only": "+a", tree / "deep": "+i"}
    for path, flag in flagged.items():
        if not path.exists():
            path.write_text("data")
        done = subprocess.run(["chattr", flag, str(path)], capture_output=True, text=True, check=False)
        if done.returncode:
            subprocess.run(["chattr", "-ia", *map(str, flagged)], capture_output=True, check=False)
            pytest.skip(f"chattr: {done.stderr}")
    done = within("remove", "10", "20", str(tree))
    assert done.returncode == 0, done.stdout + done.stderr
    assert not tree.exists()


def test_directory_that_cannot_be_removed_is_tried_twice(tmp_path, monkeypatch) -> None:
    tools, tried = tmp_path / "tools", tmp_path / "tried"
    tools.mkdir()
    (tools / "rm").write_text(f'#!/bin/sh\n[ "$1" = -rfv ] || exec /bin/rm "$@"\necho >>{tried}; exit 1\n')
    (tools / "rm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    assert within("remove", "10", "20", str(tools)).returncode == 1
    assert tried.read_text() == "\n\n"


def test_within_passes_status_and_words_on() -> None:
    done = within("within", "5", "sh", "-c", "echo output; exit 7")
    assert (done.returncode, done.stdout) == (7, "output\n")


@pytest.mark.parametrize(
    "argv",
    [["sleep", "60"], ["sh", "-c", "trap '' TERM; for i in 1 2 3 4 5 6 7 8 9; do sleep 1; done"]],
    ids=["ends by a signal", "ignores signals"],
)
def test_within_ends_what_takes_too_long(argv: list[str]) -> None:
    assert within("within", "1", *argv).returncode in {124, 137}
