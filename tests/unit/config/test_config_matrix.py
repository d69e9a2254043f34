# ruff: noqa: E501  # YAML as people write it
"""config: a matrix becomes variants with stable, readable ids."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

HEAD = "version: 1\ntargets:\n  t: {protocol: shelf, address: 192.0.2.1, path: /a, "

IDS = [
    ("port: 1}", ["t"]),
    ("matrix: {version: ['3', '4.2']}}", ["t-v3", "t-v4.2"]),
    (
        "matrix: {nconnect: [1, 4], version: ['4.1', '4.2']}}",
        ["t-v4.1-nconnect1", "t-v4.2-nconnect1", "t-v4.1-nconnect4", "t-v4.2-nconnect4"],
    ),
    (
        "matrix: {rsize: [65536, 1MiB, 5kB], hard: [true]}}",
        ["t-hard-rsize64KiB", "t-hard-rsize1MiB", "t-hard-rsize5kB"],
    ),
    ("matrix: {hard: [yes, no]}}", ["t-hard", "t-no-hard"]),
    ("matrix: {nconnect: [~, 2]}}", ["t-no-nconnect", "t-nconnect2"]),
    ("matrix: {timeout: [5ms, 2min]}}", ["t-timeout0.005", "t-timeout120"]),
    ("matrix: {label: ['a/b c', x_y]}}", ["t-labela-b-c", "t-labelx_y"]),
    ("matrix: {flags: [[a, b], []]}}", ["t-flagsa-b", "t-flags"]),
    ("matrix: {depth: [auto, 7]}}", ["t-depthauto", "t-depth7"]),
    ("matrix: {version: [none]}}", ["t-vnone"]),
    (
        "matrix: {version: ['3', '4.2'], nconnect: [1, 16]}, exclude: [{version: '3', nconnect: 16}]}",
        ["t-v3-nconnect1", "t-v4.2-nconnect1", "t-v4.2-nconnect16"],
    ),
    (
        "matrix: {version: ['3', '4.0', '4.2'], hard: [true, false]}, exclude: [{version: '3'}, {hard: no, version: '4.0'}]}",
        ["t-v4.0-hard", "t-v4.2-hard", "t-v4.2-no-hard"],
    ),
]


@pytest.mark.parametrize(("rest", "ids"), IDS)
def test_ids(load_text, rest, ids):
    assert [variant.id for variant in load_text(HEAD + rest).variants] == ids


def test_each_variant_has_its_own_options(load_text):
    variants = load_text(HEAD + "rsize: 4KiB, matrix: {version: ['3', '4.2'], nconnect: [1, 2]}}").variants
    chosen = [(variant.options.version, variant.options.nconnect) for variant in variants]
    assert chosen == [("3", 1), ("3", 2), ("4.2", 1), ("4.2", 2)]
    assert {variant.options.rsize for variant in variants} == {4096}
    assert variants[0].matrix == {"version": "v3", "nconnect": "nconnect1"}
    assert {(variant.target, variant.place) for variant in variants} == {("t", "t.yaml:3:3")}


def test_an_id_does_not_depend_on_the_order_in_the_file(load_text):
    one = load_text(HEAD + "matrix: {version: ['3', '4.2'], nconnect: [1, 2], hard: [true, false]}}")
    other = load_text(HEAD + "matrix: {hard: [false, true], nconnect: [2, 1], version: ['4.2', '3']}}")
    assert {variant.id: variant.options for variant in one.variants} == {
        variant.id: variant.options for variant in other.variants
    }


def test_a_required_option_may_stand_in_the_matrix(load_text):
    config = load_text("version: 1\ntargets: {t: {protocol: drawer, matrix: {number: [1, 2]}}}")
    assert [variant.id for variant in config.variants] == ["t-number1", "t-number2"]


@given(
    versions=st.lists(st.sampled_from(["3", "4.0", "4.1", "4.2"]), min_size=1, unique=True),
    connects=st.lists(st.integers(1, 8), min_size=1, max_size=4, unique=True),
    sizes=st.lists(st.integers(1024, 1 << 40), min_size=1, max_size=3, unique=True),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
def test_every_combination_once_each_with_its_own_safe_id(load_text, versions, connects, sizes):
    variants = load_text(
        HEAD + f"matrix: {{version: {versions}, nconnect: {connects}, rsize: {sizes}}}}}"
    ).variants
    combinations = {(v.options.version, v.options.nconnect, v.options.rsize) for v in variants}
    assert combinations == {(v, n, r) for v in versions for n in connects for r in sizes}
    assert len({variant.id for variant in variants}) == len(variants) == len(combinations)
    for variant in variants:
        assert re.fullmatch(r"[A-Za-z0-9._-]+", variant.id)
        assert "192.0.2.1" not in variant.id
