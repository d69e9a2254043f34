"""config: roles of published experiments."""

import pytest

from storagetest.errors import ConfigError

HEAD = """\
version: 1
targets:
  shelf: {protocol: shelf, address: a.example.net, path: /a, matrix: {version: ["3", "4.0"]}}
  first: {protocol: drawer, number: 1, erase: naa.1}
"""


def test_a_role_is_a_variant_or_the_first_of_a_target(load_text):
    roles = load_text(f"{HEAD}roles: {{nfs: shelf-v4.0, cifs: shelf, iscsi: first}}\n").roles
    assert {name: variant.id for name, variant in roles.items()} == {
        "nfs": "shelf-v4.0",
        "cifs": "shelf-v3",
        "iscsi": "first",
    }


def test_without_the_section_there_are_none(load_text):
    assert load_text(HEAD).roles == {}


@pytest.mark.parametrize(
    ("section", "place", "message"),
    [
        ("roles: [first]", "5:8", "roles: expected a mapping"),
        ("roles: {isci: first}", "5:9", "roles.isci: no such role; did you mean 'iscsi'?"),
        ("roles: {iscsi: frist}", "5:16", "roles.iscsi: unknown target 'frist'; did you mean 'first'?"),
        ("roles: {iscsi: 5}", "5:16", "roles.iscsi: expected a target or a variant, not a number"),
        ("roles: {iscsi: [first]}", "5:16", "roles.iscsi: expected a target or a variant, not a list"),
    ],
)
def test_an_error_has_line_and_column(load_text, section, place, message):
    with pytest.raises(ConfigError) as caught:
        load_text(f"{HEAD}{section}\n")
    assert f":{place}: {message}" in str(caught.value)


def test_the_schema_takes_roles(fits_schema):
    assert fits_schema(roles={"iscsi": "my-array"})
    assert not fits_schema(roles={"isci": "my-array"})
    assert not fits_schema(roles={"iscsi": 5})
