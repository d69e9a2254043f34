"""A failed comparison of large values is explained by its first difference."""

from dataclasses import dataclass

import pytest

from storagetest.plugin.large_operands import first_difference, is_large

BYTES = bytes(300)
NAMES = [f"name-{number}" for number in range(300)]


@dataclass
class Reply:
    count: int
    data: bytes


@pytest.mark.parametrize(
    "value",
    [BYTES, bytearray(BYTES), memoryview(BYTES), "x" * 5000, NAMES, set(NAMES), dict.fromkeys(NAMES),
     [1, BYTES], {"data": BYTES}, Reply(1, BYTES), [Reply(1, BYTES)]],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_large(value):
    assert is_large(value)


@pytest.mark.parametrize("value", [b"abc", "abc", [1, b"a"], {1}, {"a": b"b"}, Reply(1, b""), Reply, None])
def test_small(value):
    assert not is_large(value)


def test_a_value_that_contains_itself_ends():
    value: list[object] = [1]
    value.append(value)
    assert not is_large(value)


@pytest.mark.parametrize(
    ("left", "right", "lines"),
    [
        (BYTES, BYTES[:299] + b"\1",
         ["first difference at offset 299 (0x12b)", "left:  00", "right: 01"]),
        (BYTES, BYTES + b"\1\2",
         ["first difference at offset 300 (0x12c)", "left:  ends there", "right: 01 02"]),
        ("x" * 5000 + "a", "x" * 5000 + "b",
         ["first difference at character 5,000; the text around it:",
          f"left:  {'x' * 40 + 'a'!r}", f"right: {'x' * 40 + 'b'!r}"]),
        (NAMES, [*NAMES[:7], "x", *NAMES[8:]],
         ["first difference at index 7", "first difference at character 0; the text around it:",
          "left:  'name-7'", "right: 'x'"]),
        (NAMES, NAMES[:-1], ["only the left one has index 299: 'name-299'"]),
        (NAMES[:-1], NAMES, ["only the right one has index 299: 'name-299'"]),
        (set(NAMES), {*NAMES[1:], "other"},
         ["only in the left one, 1: 'name-0'", "only in the right one, 1: 'other'"]),
        (set(NAMES), set(),
         ["only in the left one, 300: 'name-0', 'name-1', 'name-10', 'name-100', 'name-101', ..."]),
        ({"a": 1, "b": BYTES}, {"b": b"", "c": 2},
         ["only in the left one, 1: 'a'", "only in the right one, 1: 'c'", "first difference at ['b']",
          "first difference at offset 0 (0x0)", f"left:  {bytes(16).hex(' ')}", "right: ends there"]),
        (Reply(1, BYTES), Reply(1, b"\1"),
         ["first difference at .data", "first difference at offset 0 (0x0)", f"left:  {bytes(16).hex(' ')}",
          "right: 01"]),
        (BYTES, None, ["left:  b'\\x00\\x00\\x00\\x...\\x00\\x00\\x00\\x00'", "right: None"]),
    ],
)  # fmt: skip
def test_first_difference(left, right, lines):
    shown = first_difference(left, right)
    if right is None:
        assert shown[1] == lines[1]
        assert len(shown[0]) < 200
    else:
        assert shown == lines


SUITE = """\
import pytest

def test_bytes(variant):
    data = b"Z" * 262144
    assert b"\\xa5" + data[1:] == data

def test_names(variant):
    assert ["n%d" % i for i in range(3000)] == ["m%d" % i for i in range(3000)]

def test_small(variant):
    assert [1, 2] == [1, 3]
"""


def test_a_run_in_ci_explains_large_values_at_once(pytester, monkeypatch):
    """Without the hooks this takes more than ten minutes."""
    monkeypatch.setenv("CI", "true")
    pytester.makefile(".yaml", targets="version: 1\ntargets: {disk: {protocol: local, path: /var/tmp}}\n")
    pytester.makepyfile(SUITE)
    output = pytester.runpytest_inprocess("-p", "no:cacheprovider").stdout.str()
    assert "assert b'" in output  # the start of the value itself: entries of known issues name it
    assert "assert ['n0', 'n1', " in output
    assert "(262,144 bytes) == b'" in output
    assert "(3,000 entries) == ['m0', 'm1', " in output
    assert "first difference at offset 0 (0x0)" in output
    assert "first difference at index 0" in output
    assert "At index 1 diff: 2 != 3" in output  # pytest's own
