# ruff: noqa: E501  # YAML as people write it
"""config: a file is loaded as frozen values; a matrix becomes variants with readable ids."""

import dataclasses
import re
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storagetest.config import ThresholdText
from storagetest.config.models import PROFILES
from storagetest.errors import ConfigError

MINIMAL = "version: 1\ntargets: {t: {protocol: drawer, number: 3}}\n"

FULL = dedent("""\
    version: 1
    x-common: &common {protocol: shelf, address: 192.0.2.1, path: /a}
    clients:
      c1: {transport: ssh, address: c1.example.net, jump: gate, password: sesame1, key: keys/id, port: 2222}
      c2: {transport: ssh, address: c2, jump: {address: gate2, connect_timeout: 500ms}, known_hosts: ~/hosts}
      here: {transport: local}
    servers:
      gate: {transport: ssh, address: gate.example.net, host_key_check: false}
      box: {transport: ssh, address: "2001:db8::1"}
    targets:
      both: {<<: *common, clients: [c2, c1], server: box, optional: true, rsize: 1MiB, timeout: 2min, flags: [a, b]}
      one: {<<: *common, client: here, path: /b, cacert: ca.pem, depth: 3}
    profiles:
      smoke: {runtime: 2s, size: 64MiB}
      mine: {repeats: 12, ramp: 0}
    thresholds:
      stream: [iops >= 20, p99 <= 5ms]
    """)


def test_the_smallest_file(load_text):
    config = load_text(MINIMAL)
    (variant,) = config.variants
    assert (variant.id, variant.protocol, variant.options.number) == ("t", "drawer", 3)
    assert (variant.optional, variant.server) == (False, None)
    assert [(client.name, client.transport) for client in variant.clients] == [("local", "local")]
    assert config.profiles == PROFILES
    assert config.path == Path("t.yaml")


def test_machines(load_text, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/tester")
    config = load_text(FULL)
    c1, c2, here = config.clients.values()
    assert (c1.address, c1.port, c1.place) == ("c1.example.net", 2222, "t.yaml:4:3")
    assert c1.password.reveal() == "sesame1"
    assert c1.key == Path("keys/id")
    assert c1.jump == config.servers["gate"]
    assert c1.jump.host_key_check is False
    assert c1.host_key_check is True
    assert (c2.jump.address, c2.jump.connect_timeout) == ("gate2", 0.5)
    assert c2.known_hosts == Path("/home/tester/hosts")
    assert here.transport == "local"


def test_targets(load_text):
    both, one = load_text(FULL).variants
    assert [client.name for client in both.clients] == ["c2", "c1"]
    assert both.server.address == "2001:db8::1"
    assert both.optional is True
    assert (both.options.rsize, both.options.timeout, both.options.flags) == (1 << 20, 120.0, ("a", "b"))
    assert type(both.options.path) is str
    assert (one.options.path, one.options.depth) == ("/b", 3)
    assert [client.name for client in one.clients] == ["here"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.id = "x"


def test_paths_start_from_the_file(load_text, tmp_path, fake_kinds):
    from storagetest.config import load

    load_text(FULL)
    elsewhere = load(tmp_path / "t.yaml")
    assert elsewhere.variants[1].options.cacert == tmp_path / "ca.pem"
    assert elsewhere.clients["c1"].key == tmp_path / "keys/id"


def test_profiles_change_and_add(load_text):
    config = load_text(FULL)
    smoke, mine = config.profile("smoke"), config.profile("mine")
    assert (smoke.runtime, smoke.size, smoke.ramp) == (2.0, 64 << 20, PROFILES["smoke"].ramp)
    assert (mine.name, mine.repeats, mine.max_repeats, mine.ramp) == ("mine", 12, 12, 0.0)
    assert mine.runtime == PROFILES["standard"].runtime
    with pytest.raises(ConfigError, match="unknown profile 'smok'; did you mean 'smoke'"):
        config.profile("smok")


def test_every_profile_can_be_run():
    for profile in PROFILES.values():
        assert profile.size % 4096 == 0
        assert profile.runtime > 0
        assert 3 <= profile.repeats <= profile.max_repeats


# --- thresholds --------------------------------------------------------------------------------------------

GATED = dedent("""\
    version: 1
    thresholds:
      stream: [iops >= 10, p99 <= 5ms]
      stream[direction=read,block_size=1MiB]: [iops >= 30]
      stream[direction=read]: [iops >= 20, bandwidth >= 1MiB/s]
      stream[depth=4]: [p95 <= 9ms]
    targets:
      plain: {protocol: drawer, number: 1}
      own:
        protocol: drawer
        number: 2
        thresholds:
          stream: [iops >= 5]
          stream[direction=write]: [p99 <= 1ms]
    """)

CHOSEN = [
    ("plain", {"direction": "write", "block_size": 4096}, "iops >= 10, p99 <= 5ms"),
    ("plain", {"direction": "read", "block_size": 4096}, "bandwidth >= 1MiB/s, iops >= 20, p99 <= 5ms"),
    ("plain", {"direction": "read", "block_size": 1 << 20}, "bandwidth >= 1MiB/s, iops >= 30, p99 <= 5ms"),
    ("plain", {"direction": "read", "block_size": "1MiB"}, "bandwidth >= 1MiB/s, iops >= 30, p99 <= 5ms"),
    ("plain", {"depth": 4}, "iops >= 10, p95 <= 9ms, p99 <= 5ms"),
    ("plain", {}, "iops >= 10, p99 <= 5ms"),
    ("own", {"direction": "read", "block_size": "1MiB"}, "bandwidth >= 1MiB/s, iops >= 5, p99 <= 5ms"),
    ("own", {"direction": "write", "other": object()}, "iops >= 5, p99 <= 1ms"),
]


@pytest.mark.parametrize(("target", "parameters", "texts"), CHOSEN)
def test_which_thresholds_hold(load_text, target, parameters, texts):
    config = load_text(GATED)
    variant = next(variant for variant in config.variants if variant.id == target)
    thresholds = config.thresholds_for(variant, "stream", parameters)
    assert ", ".join(sorted(threshold.text for threshold in thresholds)) == texts


def test_a_threshold_knows_its_place_and_bound(load_text):
    config = load_text(GATED)
    (threshold, _) = config.thresholds_for(config.variants[0], "stream", {})
    assert (threshold.metric.name, threshold.op, threshold.bound) == ("iops", ">=", 10)
    assert threshold.place == "t.yaml:3:12"
    assert config.thresholds[0].gates[1] == ThresholdText("p99 <= 5ms", "t.yaml:3:24")


def test_a_workload_without_thresholds_has_none_and_an_unknown_one_is_an_error(load_text):
    config = load_text(GATED)
    assert config.thresholds_for(config.variants[0], "small-drip", {}) == ()
    with pytest.raises(ConfigError, match="unknown workload 'strem'; did you mean 'stream'"):
        config.thresholds_for(config.variants[0], "strem", {})


# --- overrides ---------------------------------------------------------------------------------------------


def test_overrides_change_what_is_there(load_text):
    config = load_text(
        FULL,
        "targets.one.path=/new",
        "targets.both.clients.0=here",
        "targets.one.matrix={version: ['3', '4.0']}",
        "profiles.smoke.repeats=4",
        "profiles.smoke.max_repeats=4",
        "profiles.fresh.runtime=3s",
        "clients.c1.address=other",
        "thresholds.stream[direction=read,block_size=1.5KiB]=[iops >= 7]",
    )
    both, *one = config.variants
    assert [variant.id for variant in one] == ["one-v3", "one-v4.0"]
    assert {variant.options.path for variant in one} == {"/new"}
    assert [client.name for client in both.clients] == ["here", "c1"]
    assert config.profile("smoke").repeats == 4
    assert config.profile("fresh").runtime == 3.0
    assert config.clients["c1"].address == "other"
    assert config.thresholds[1].where == {"direction": "read", "block_size": 1536}


def test_thresholds_can_be_set_where_the_file_has_none(load_text):
    config = load_text(MINIMAL, "thresholds.stream=[iops >= 7]", "targets.t.number=4")
    assert config.variants[0].options.number == 4
    assert [threshold.bound for threshold in config.thresholds_for(config.variants[0], "stream", {})] == [7]


OVERRIDES = [
    ("targets.t.numbr=4", "--st-set targets.t.numbr: targets.t.numbr: no such key; did you mean 'number'?"),
    ("targets.tt.number=4", "--st-set targets.tt.number: no such key 'tt'; did you mean 't'?"),
    ("target.t.number=4", "--st-set target.t.number: no such key 'target'; did you mean 'targets'?"),
    (
        "targets.t.number.x=4",
        "--st-set targets.t.number.x: cannot set a value below a number (at t.yaml:2:41)",
    ),
    (
        "targets.t.number=x",
        "--st-set targets.t.number:1:1: targets.t.number: expected a whole number, not text (x)",
    ),
    (
        "targets.t.number=[1",
        "--st-set targets.t.number:1:3: not YAML: expected ',' or ']', but got '<stream end>'",
    ),
    ("targets.t.number", "--st-set wants path=value, such as targets.nfs.export=/a"),
    ("=4", "--st-set wants path=value, such as targets.nfs.export=/a"),
    (
        "profiles.smoke.runtme=4s",
        "--st-set profiles.smoke.runtme: profiles.smoke.runtme: no such key; did you mean 'runtime'?",
    ),
    ("targets.t.clients.0=c", "--st-set targets.t.clients.0: no such key 'clients'; known: number, protocol"),
]


@pytest.mark.parametrize(("override", "message"), OVERRIDES)
def test_an_override_that_names_nothing_is_an_error(error_of, override, message):
    assert str(error_of(MINIMAL, override)) == message


def test_an_index_outside_the_list_names_nothing(error_of):
    message = "no such index '2'; expected an index below 2"
    assert message in str(error_of(FULL, "targets.both.clients.2=here"))


# --- secrets -----------------------------------------------------------------------------------------------

SECRETS = dedent("""\
    version: 1
    clients:
      c: {transport: ssh, address: c, password: "${env:ST_TEST_PASSWORD}"}
    targets:
      t: {protocol: shelf, address: a, path: /a, secret: "${file:dir/secret}", login: {username: u, password: hunter22}}
    """)


def test_secrets_are_looked_up_when_they_are_used(load_text, tmp_path, monkeypatch):
    monkeypatch.delenv("ST_TEST_PASSWORD", raising=False)
    config = load_text(SECRETS)
    client, options = config.clients["c"], config.variants[0].options
    with pytest.raises(
        ConfigError, match=r"^t.yaml:3:45: the environment variable ST_TEST_PASSWORD is not set$"
    ):
        client.password.reveal()
    with pytest.raises(
        ConfigError, match=r"^t.yaml:5:54: the secret's file dir/secret cannot be read: No such file"
    ):
        options.secret.reveal()
    monkeypatch.setenv("ST_TEST_PASSWORD", "from env")
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir/secret").write_text(" from file \n")
    assert client.password.reveal() == "from env"
    assert options.secret.reveal() == " from file "
    assert options.login.password.reveal() == "hunter22"


def test_plain_secrets_are_listed_without_their_text(load_text):
    found = load_text(SECRETS.replace("a, path", "a, wire: h:1, path")).plain_secrets()
    assert found == ["t.yaml:5:118: password is plain text in the file. Write ${env:NAME} or ${file:PATH}"]


def test_a_secret_file_that_is_not_text_is_an_error(load_text, tmp_path):
    config = load_text(SECRETS)
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir/secret").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not text in UTF-8"):
        config.variants[0].options.secret.reveal()


def test_an_empty_secret_or_a_file_that_cannot_be_is_an_error(load_text, tmp_path, monkeypatch):
    monkeypatch.setenv("ST_TEST_PASSWORD", "")
    config = load_text(SECRETS.replace("dir/secret", "~no-user-of-that-name/x"))
    with pytest.raises(ConfigError, match=r"^t.yaml:3:45: the secret in ST_TEST_PASSWORD is empty$"):
        config.clients["c"].password.reveal()
    with pytest.raises(ConfigError, match="'~no-user-of-that-name/x' cannot be read"):
        config.variants[0].options.secret.reveal()


def test_no_secret_is_in_any_text_of_a_config(load_text):
    config = load_text(
        SECRETS.replace("${env:ST_TEST_PASSWORD}", "hunter22").replace("${file:dir/secret}", "hunter22")
    )
    options = config.variants[0].options
    client = config.clients["c"]
    shown = [repr(config), str(config), str(options.secret), f"{options.secret}", repr(options.model_dump())]
    shown += [options.model_dump_json(), repr(client), repr(dataclasses.astuple(client))]
    for text in shown:
        assert "hunter" not in text
        assert "****" in text


WRONG_SECRETS = [
    "login: {username: u, pasword: hunter22}",
    "pasword: hunter22",
    "login: {username: u, password: {x: hunter22}}",
    "login: {username: u, password: [hunter22]}",
    "login: {username: u, password: 'x${env:hunter22}'}",
    "login: hunter22",
    "login: [hunter22]",
    "secret: 'hunter22${env:A}'",
    "secret: 0227702277",
    "secret: 227702277",
    "secret: 2277-02-27",
    "matrix: {secret: [hunter22]}",
    "matrix: {login: [{username: hunter22, password: hunter22}]}",
]


@pytest.mark.parametrize("option", WRONG_SECRETS)
def test_no_secret_is_in_an_error(error_of, option):
    cause = error_of(f"version: 1\ntargets: {{t: {{protocol: shelf, address: a, path: /a, {option}}}}}")
    while cause is not None:
        assert "hunter" not in str(cause)
        assert "2277" not in str(cause)
        cause = cause.__cause__ or cause.__context__


def test_an_override_that_is_wrong_shows_no_value(error_of):
    assert "hunter" not in str(error_of(SECRETS, "targets.t.login.pasword=hunter22"))


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
