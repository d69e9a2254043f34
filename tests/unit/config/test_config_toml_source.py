"""config: TOML read as nodes, each with the position that the file has it at."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storagetest.config import toml_source
from storagetest.config.yaml_source import YamlNode
from storagetest.errors import ConfigError

TEXT = '''\
# a comment with = and [brackets]
owner = "ann # no comment"
"two words" = 'x'
a.b = 1.5                       # a key with a dot

[[known_issues]]
cases = [
    "A-1",  # "not this"
    'B-2', """C "quoted" \\
      3""",
]
where = { version = "4.2", posix = true }
expires = 2027-03-31

[known_issues.more]
x = [[1], [{ y = 2 }]]

[[known_issues]]
cases = ["D-4"]
'''
POSITIONS = [
    (("owner",), "2:1", "2:9"),
    (("two words",), "3:1", "3:15"),
    (("a",), "4:1", "4:1"),
    (("a", "b"), "4:1", "4:7"),
    (("known_issues",), "6:1", "6:1"),
    (("known_issues", 0), "6:1", "6:1"),
    (("known_issues", 0, "cases"), "7:1", "7:9"),
    (("known_issues", 0, "cases", 0), "8:5", "8:5"),
    (("known_issues", 0, "cases", 1), "9:5", "9:5"),
    (("known_issues", 0, "cases", 2), "9:12", "9:12"),
    (("known_issues", 0, "where", "version"), "12:11", "12:21"),
    (("known_issues", 0, "where", "posix"), "12:28", "12:36"),
    (("known_issues", 0, "expires"), "13:1", "13:11"),
    (("known_issues", 0, "more"), "15:1", "15:1"),
    (("known_issues", 0, "more", "x", 1, 0, "y"), "16:14", "16:18"),
    (("known_issues", 1), "18:1", "18:1"),
    (("known_issues", 1, "cases", 0), "19:10", "19:10"),
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "f.toml"


@pytest.mark.parametrize(("path", "key", "value"), POSITIONS)
def test_every_key_and_value_has_its_position(file: Path, path: tuple[str | int, ...], key: str, value: str):
    file.write_text(TEXT)
    node: YamlNode | None = toml_source.read(file)
    for step in path:
        assert node is not None
        node = node.child(step)
    assert node is not None
    assert (node.key_place, node.place) == (f"{file}:{key}", f"{file}:{value}")


def test_the_values_are_those_of_tomllib(file: Path):
    file.write_text(TEXT)
    assert toml_source.read(file).plain() == tomllib.loads(TEXT)


_SCALARS = st.sampled_from(["1", "-2.5e3", '"a, b] = {"', "'c''d'"[:3], "true", "1979-05-27T07:32:00Z", '""'])
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        | st.lists(inner, max_size=3).map(
            lambda items: "{" + ", ".join(f"k{index} = {item}" for index, item in enumerate(items)) + "}"
        )
    ),
    max_leaves=8,
)


@given(st.lists(_VALUES, max_size=4))
def test_any_document_is_read_and_each_key_has_its_place(tmp_path_factory, values: list[str]):
    file = tmp_path_factory.mktemp("toml") / "f.toml"
    lines = [f"key{index} = {value}" for index, value in enumerate(values)]
    file.write_text("\n".join(lines))
    root = toml_source.read(file)
    assert root.plain() == tomllib.loads(file.read_text())
    for index, node in enumerate((root.mapping or {}).values()):
        assert node.key_place == f"{file}:{index + 1}:1"
        assert node.place == f"{file}:{index + 1}:{len(f'key{index} = ') + 1}"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a = \n", "1:5: not TOML: Invalid value"),
        (b"a = 1\nb", "2:2: not TOML: Expected '=' after a key in a key/value pair"),
        (b"a = '\xff'", "1:1: this is not UTF-8"),
    ],
)
def test_an_error_has_its_position(file: Path, data: bytes, message: str):
    file.write_bytes(data)
    with pytest.raises(ConfigError) as raised:
        toml_source.read(file)
    assert str(raised.value) == f"{file}:{message}"
