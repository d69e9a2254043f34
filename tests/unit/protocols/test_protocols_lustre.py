"""Lustre's options, the layout and networks that were really obtained, and what they are compared with."""

import os
import re
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from pydantic import ValidationError

from storagetest import config
from storagetest.config.matrix import parts
from storagetest.errors import AttachError, ClientLacks, ConfigError, OptionRefused, TargetDead
from storagetest.hosts import Completed, Journal, LocalHost
from storagetest.protocols import _lustre_layout as layouts
from storagetest.protocols import _lustre_lnet as lnet
from storagetest.protocols import lustre
from storagetest.protocols.base import protocols
from storagetest.protocols.template import Attaching

Lustre: Any = protocols.get("lustre")


def options(**more: object) -> Any:
    return Lustre.Options.model_validate({"mgs": "10.77.0.1@tcp", "fsname": "lustre", **more})


def mismatches(output: str, **asked: object) -> list[str]:
    negotiated = lustre.parse_negotiated(output)
    return [str(one) for one in Lustre().option_mismatches(options(**asked), negotiated)]


PLAIN = """\
== layout
lmm_stripe_count:  2
lmm_stripe_size:   1048576
lmm_pattern:       raid0
lmm_layout_gen:    0
lmm_stripe_offset: 1
lmm_objects:
      - l_ost_idx: 1
        l_fid:     0x100010000:0x2:0x0
== osts
OBDS:
0: lustre-OST0000_UUID ACTIVE
1: lustre-OST0001_UUID ACTIVE
2: lustre-OST0002_UUID INACTIVE
"""

COMPONENT = """\
  component{number}:
    lcme_id:             {number}
    lcme_mirror_id:      0
    lcme_flags:          {flags}
    lcme_extent.e_start: {start}
    lcme_extent.e_end:   {end}
    sub_layout:
      lmm_stripe_count:  {count}
      lmm_stripe_size:   {size}
      lmm_pattern:       {pattern}
      lmm_layout_gen:    0
      lmm_stripe_offset: 0
"""


def component(number: int, start: int, end: object, count: int, **more: object) -> str:
    values = {"flags": "init", "size": 1 << 20, "pattern": "raid0", **more}
    return COMPONENT.format(number=number, start=start, end=end, count=count, **values)


def composite(*components: str) -> str:
    head = "== layout\n  lcm_layout_gen:    3\n  lcm_mirror_count:  1\n  lcm_entry_count:   2\n"
    return head + "".join(components) + PLAIN[PLAIN.index("== osts") :]


BOTH = composite(component(0, 0, 1 << 20, 1), component(1, 1 << 20, "EOF", 2))
ASKED = "-E 1M -c 1 -E eof -c 2"
ASKED_OF_LFS = "--component-end 1048576 --stripe-count 1 --component-end -1 --stripe-count 2"


def test_read_back() -> None:
    assert lustre.parse_negotiated(PLAIN) == {
        "stripe_count": "2",
        "stripe_size": "1048576",
        "stripe_offset": "1",
        "pattern": "raid0",
        "objects": "yes",
        "osts": "2",
    }


def test_read_back_of_components_in_a_list() -> None:
    """Lustre 2.17 prints the components as a list; older releases print a key for each."""
    listed = re.sub(r"(?m)^  component\d+:\n    lcme_id", "  - lcme_id", BOTH)
    assert "component" not in listed
    assert lustre.parse_negotiated(listed) == lustre.parse_negotiated(BOTH)


def test_read_back_of_a_composite_layout_names_the_components() -> None:
    found = lustre.parse_negotiated(BOTH)
    assert (found["stripe_count"], found["component2.stripe_count"]) == ("1", "2")
    assert (found["end"], found["component2.end"]) == ("1048576", "eof")
    assert layouts.to_negotiated(layouts.from_negotiated(found)) == {
        name: value for name, value in found.items() if name != "osts"
    }


@pytest.mark.parametrize(
    ("asked", "different"),
    [
        ({}, []),
        ({"stripe_count": 0}, []),
        ({"stripe_count": 2, "stripe_size": "1MiB", "stripe_offset": 1}, []),
        ({"stripe_offset": -1}, []),
        ({"stripe_count": -1}, []),
        ({"stripe_count": 4}, ["stripe_count: requested 4, got 2"]),
        ({"stripe_offset": 0}, ["stripe_offset: requested 0, got 1"]),
        ({"stripe_size": "2MiB"}, ["stripe_size: requested 2097152, got 1048576"]),
        ({"pool": "flash"}, ["pool: requested flash, got no value"]),
        ({"layout": ASKED}, ["layout: requested 2 components, got 1 component"]),
    ],
)
def test_silent_changes_of_a_plain_layout_are_found(asked: dict[str, object], different: list[str]) -> None:
    assert mismatches(PLAIN, **asked) == different


def test_all_osts_are_those_of_the_pool() -> None:
    pool = PLAIN.replace("== osts", "  lmm_pool: flash\n== osts lustre.flash\nPool: lustre.flash\n{}== osts")
    one, two = (pool.format("lustre-OST0000_UUID\n" * count) for count in (1, 2))
    assert mismatches(two, stripe_count=-1, pool="flash") == []
    assert mismatches(one, stripe_count=-1, pool="flash") == ["stripe_count: requested 1, got 2"]


@pytest.mark.parametrize(
    ("actual", "different"),
    [
        (BOTH, []),
        (PLAIN, ["layout: requested 2 components, got 1 component"]),
        (
            composite(component(0, 0, 1 << 20, 1), component(1, 1 << 20, "EOF", 1)),
            ["component 2 stripe_count: requested 2, got 1"],
        ),
        (
            composite(component(0, 0, 2 << 20, 1), component(1, 2 << 20, "EOF", 2)),
            ["component 1 end: requested 1048576, got 2097152"],
        ),
        (
            composite(component(0, 0, 1 << 20, 1), component(1, 1 << 20, "EOF", 2, flags="0")),
            ["component 2 objects: requested yes, got no"],
        ),
    ],
)
def test_silent_changes_of_a_progressive_layout_are_found(actual: str, different: list[str]) -> None:
    assert mismatches(actual, layout=ASKED) == different


def test_default_layout_of_the_file_system_may_be_anything() -> None:
    assert mismatches(BOTH) == []
    assert mismatches(BOTH, stripe_count=1) == ["layout: requested 1 component, got 2 components"]


def test_options_of_setstripe() -> None:
    asked = options(stripe_count=4, stripe_size="1MiB", stripe_offset=0, pool="flash")
    plain = layouts.setstripe_argv(asked.components, progressive=False)
    assert " ".join(plain) == "--stripe-count 4 --stripe-size 1048576 --stripe-index 0 --pool flash"
    assert layouts.setstripe_argv(options().components, progressive=False) == ["--stripe-count", "0"]
    text = "-E 64K -L mdt --component-end=1M -c1 -S 256K -E -1 -c -1 -p slow".replace("-c1", "-c 1")
    progressive = layouts.setstripe_argv(options(layout=text).components, progressive=True)
    assert " ".join(progressive) == (
        "--component-end 65536 --layout mdt --component-end 1048576 --stripe-count 1 --stripe-size 262144 "
        "--component-end -1 --stripe-count -1 --pool slow"
    )
    assert layouts.starts(options(layout=text).components) == [0, 65536, 1 << 20]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the layout has no component: each begins with -E END"),
        ("-c 1", "-c 1 belongs to no component: a component begins with -E END"),
        ("-E 1M -c", "-c has no value"),
        ("-E 1M -x 2", "-x is no option of a layout; -E, -c, -S, -i, -p, -L are"),
        ("-E 1000 -c 1", "-E 1000: expected a multiple of 64KiB"),
        ("-E 1M -S 3K", "-S 3K: expected a multiple of 64KiB"),
        ("-E 1M -c many", "-c many: expected a number from -1 to 2000"),
        ("-E 1M -c -2", "-c -2: expected a number from -1 to 2000"),
        ("-E 2M -c 1 -E 1M", "the component that ends at 1MiB follows one that ends at 2MiB"),
        ("-E -1 -c 1 -E 2M", "a component follows the one that ends at the end of the file"),
        ("-E 1M -c 1 -c 2", "-c is given twice for one component"),
        ("-E 1M -E eof -L mdt", "only the first component can be on the MDT"),
        ("-E 1M -L mdt -c 2", "a component on the MDT (-L mdt) has no stripes"),
        ("-E 1M -L tape", "-L tape: expected mdt or raid0"),
        ("-E 1M -p a/b", "-p a/b: expected the name of a pool"),
        ("-E '1M", "cannot be split into words: No closing quotation"),
        (4, "expected the options of lfs setstripe"),
    ],
)
def test_malformed_layout_is_one_sentence(text: object, sentence: str) -> None:
    with pytest.raises(ValidationError) as refused:
        options(layout=text)
    (error,) = refused.value.errors()
    assert error["loc"] == ("layout",)
    assert sentence in error["msg"]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"layout": ASKED, "stripe_count": 2}, "`layout` has its own stripe_count"),
        ({"conns_per_peer": 4}, "`conns_per_peer` needs `lnet`"),
        ({"mgs": "10.0.0.1"}, "'10.0.0.1' is no NID in '10.0.0.1'"),
        ({"mgs": "a@tcp:"}, "a NID is missing in 'a@tcp:'"),
        ({"mgs": "a@tcp::b@tcp"}, "a NID is missing in 'a@tcp::b@tcp'"),
        ({"mgs": "a@tcp:-b@tcp"}, "'-b@tcp' is no NID"),
        ({"lnet": "tcp"}, "'tcp' in 'tcp' is no network: expected NETWORK(INTERFACE)"),
        ({"lnet": "tcp()"}, "'' in 'tcp()' is no network interface"),
        ({"lnet": "tcp(eth0),"}, "',' in 'tcp(eth0),' is no network"),
        ({"lnet": "tcp(eth0,eth0)"}, "tcp(eth0) is listed twice"),
        ({"lnet": "tcp(-x)"}, "'-x' in 'tcp(-x)' is no network interface"),
        ({"lnet": ""}, "expected NETWORK(INTERFACE)"),
    ],
    ids=str,
)
def test_malformed_option_is_one_sentence(more: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValidationError) as refused:
        options(**more)
    (error,) = refused.value.errors()
    assert sentence in error["msg"]


def test_malformed_layout_in_a_matrix_names_its_place(tmp_path: Path) -> None:
    (tmp_path / "targets.yaml").write_text(
        "version: 1\nclients: {c: {transport: local}}\ntargets:\n  fs:\n    protocol: lustre\n"
        "    mgs: a@tcp:b@tcp\n    fsname: lustre\n    clients: [c]\n    matrix:\n"
        '      layout: ["-E 1M -c 1 -E eof", "-E 3K"]\n'
    )
    with pytest.raises(ConfigError) as refused:
        config.load(tmp_path / "targets.yaml")
    assert "targets.yaml:10:37" in str(refused.value)
    assert "-E 3K: expected a multiple of 64KiB" in str(refused.value)


def test_layouts_in_a_matrix_have_ids(tmp_path: Path) -> None:
    (tmp_path / "targets.yaml").write_text(
        "version: 1\nclients: {c: {transport: local}}\ntargets:\n  fs:\n    protocol: lustre\n"
        "    mgs: a@tcp:b@tcp\n    fsname: lustre\n    clients: [c]\n    matrix:\n"
        '      layout: ["-E 1M -c 1 -E eof -c -1", "-E 64K -L mdt -E -1 -c 1 -S 4M"]\n'
    )
    ids = [variant.id for variant in config.load(tmp_path / "targets.yaml").variants]
    assert ids == ["fs-layout1MiB-c1-eof-cminus1", "fs-layout64KiB-mdt-eof-c1-s4MiB"]


def test_options_are_the_same_after_a_dump() -> None:
    asked = options(layout=ASKED)
    assert options(**asked.model_dump(exclude_unset=True)) == asked
    assert ASKED in asked.model_dump_json()


@pytest.mark.parametrize(
    ("mgs", "server", "addresses"),
    [
        ("10.0.0.1@tcp", "10.0.0.1", ("10.0.0.1",)),
        ("mgs1@o2ib:mgs2@o2ib", "mgs1", ()),
        ("10.0.0.1@tcp,10.1.0.1@tcp1", "10.0.0.1", ("10.0.0.1", "10.1.0.1")),
        ("a@tcp:b@tcp:a@tcp", "a", ("a", "b")),
        ("a@tcp:b@o2ib", "a", ()),
    ],
)
def test_addresses_of_the_mgs(mgs: str, server: str, addresses: tuple[str, ...]) -> None:
    assert Lustre().server(options(mgs=mgs)) == server
    assert lnet.tcp_addresses(mgs) == addresses


def attaching(*connects: str) -> tuple[Attaching, Mock]:
    run = Mock(side_effect=[Completed("c", (), 0, f"connect {text}\n", "", 0.1) for text in connects])
    client = LocalHost("c")
    client.run = run  # type: ignore[method-assign]
    return Attaching(client, "lustre", 60), run


def test_a_failover_partner_that_does_not_respond_is_no_error() -> None:
    state, run = attaching("124 ", "0 ")
    Lustre().check(state, options(mgs="10.0.0.1@tcp:10.0.0.2@tcp"))
    assert [call.args[0][4] for call in run.call_args_list] == ["10.0.0.1", "10.0.0.2"]


def test_a_target_is_dead_if_no_partner_responds() -> None:
    state, _ = attaching("124 ", "1 Connection refused")
    with pytest.raises(
        TargetDead, match=r"10\.0\.0\.1 port 988: no response.*10\.0\.0\.2 port 988: the conn"
    ):
        Lustre().check(state, options(mgs="10.0.0.1@tcp:10.0.0.2@tcp"))


@pytest.mark.parametrize(
    ("status", "stderr", "error", "words"),
    [
        (
            90,
            "lfs setstripe: error: stripe size '8589934592' over 4GB limit: Invalid argument (22)",
            OptionRefused,
            "rejects this layout: lfs setstripe: error: stripe size '8589934592' over 4GB limit",
        ),
        (
            91,
            "touch: No space left on device",
            AttachError,
            "making a file with this layout on c failed: touch",
        ),
    ],
)
def test_layout_that_is_refused(status: int, stderr: str, error: type[Exception], words: str) -> None:
    state, run = attaching()
    run.side_effect = [Completed("c", (), status, "", stderr + "\n", 0.1)]
    with pytest.raises(error, match=re.escape(words)):
        Lustre().negotiated(state, options(stripe_size="8GiB"), Mock(directory="/mnt/d"))


def test_layout_is_set_by_arguments_of_lfs() -> None:
    state, run = attaching()
    run.side_effect = [Completed("c", (), 0, BOTH, "", 0.1)]
    asked = options(layout=f"{ASKED} -p flash")
    assert Lustre().negotiated(state, asked, Mock(directory="/mnt/d"))["component2.stripe_count"] == "2"
    _, _, _, _, directory, starts, pools, *argv = run.call_args.args[0]
    assert (directory, starts, pools) == ("/mnt/d", "0 1048576", "lustre.flash")
    assert " ".join(argv) == (
        "--component-end 1048576 --stripe-count 1 --component-end -1 --stripe-count 2 --pool flash"
    )


def test_all_osts_and_one_are_two_variants() -> None:
    ids = [parts(options(stripe_count=count), ["stripe_count"]) for count in (1, -1)]
    assert ids == [{"stripe_count": "c1"}, {"stripe_count": "cminus1"}]


NETWORKS = """\
net:
    - net type: lo
      local NI(s):
        - nid: 0@lo
          status: up
          lnd tunables:
              conns_per_peer: 0
    - net type: tcp
      local NI(s):
        - nid: 10.77.0.2@tcp
          status: up
          interfaces:
              0: eth0
          lnd tunables:
              conns_per_peer: 1
        - nid: 10.78.0.2@tcp
          status: up
          interfaces:
              0: eth1
          lnd tunables:
              conns_per_peer: 4
"""
NETWORKS_OF_2_17 = """\
net:
-     net type: lo
      local NI(s):
      -     nid: 0@lo
            status: up
-     net type: tcp
      local NI(s):
      -     nid: 10.77.0.11@tcp
            status: up
            interfaces:
                  0: eth0
            lnd tunables:
                  conns_per_peer: 1
"""


def test_networks_as_lustre_2_17_prints_them() -> None:
    assert lnet.parse_shown(NETWORKS_OF_2_17) == (lnet.Interface("tcp", "eth0", 1),)


def test_interface_without_a_network_is_no_network_that_lacks_it() -> None:
    with pytest.raises(ValueError, match="interface eth0 is in no network"):
        lnet.parse_shown(NETWORKS_OF_2_17.replace("net type", "type of net"))


@pytest.mark.parametrize(
    ("asked", "lines"),
    [
        ({"lnet": "tcp(eth1,eth0)"}, []),
        ({"lnet": "tcp(eth1),tcp(eth0)"}, []),
        ({"lnet": "tcp(eth0)"}, ["lnet: requested tcp(eth0), got tcp(eth0,eth1)"]),
        (
            {"lnet": "tcp(eth0,eth1)", "conns_per_peer": 4},
            ["conns_per_peer: requested 4, got 1 and 4"],
        ),
        ({"lnet": "tcp1(eth0)"}, ["lnet: requested tcp1(eth0), got "]),
    ],
)
def test_networks_that_differ_are_found(asked: dict[str, Any], lines: list[str]) -> None:
    actual = lnet.negotiated_networks(lnet.parse_networks(asked["lnet"]), lnet.parse_shown(NETWORKS))
    negotiated = {**lustre.parse_negotiated(PLAIN), **actual}
    found = Lustre().option_mismatches(options(**asked), negotiated)
    assert [str(one) for one in found] == lines


def test_command_that_adds_an_interface() -> None:
    (one,) = lnet.parse_networks("tcp1(eth0)")
    assert lnet.add_argv(one, None) == ["lnetctl", "net", "add", "--net", "tcp1", "--if", "eth0"]
    assert lnet.add_argv(one, 4)[-2:] == ["--conns-per-peer", "4"]


LFS = """#!/bin/sh
echo "$*" >>"{log}"
case $1 in
getstripe) stat -c 'size %s' "$3" >>"{log}" && cat "{text}" ;;
pool_list) echo lustre-OST0000_UUID ;;
osts) printf '0: lustre-OST0000_UUID ACTIVE\\n1: lustre-OST0001_UUID ACTIVE\\n' ;;
esac
"""
LNETCTL = """#!/bin/sh
echo "$*" >>"{log}"
case "$1 $2" in
"net show") cat "{text}" ;;
"net add") exit {status} ;;
esac
"""


def program(directory: Path, name: str, script: str) -> None:
    (directory / name).write_text(script)
    (directory / name).chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of programs that replace the client's own, with a log of their arguments."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    program(tmp_path, "modprobe", "#!/bin/sh\n")
    return tmp_path


def test_script_writes_in_each_component_and_reads_the_layout(programs: Path) -> None:
    (programs / "text").write_text(BOTH.replace("== layout\n", "").partition("== osts")[0])
    program(programs, "lfs", LFS.format(log=programs / "log", text=programs / "text"))
    (programs / "d").mkdir()
    state = Attaching(LocalHost(), "lustre", 60)
    mount = Mock(directory=str(programs / "d"))
    found = Lustre().negotiated(state, options(layout=f"{ASKED} -p flash"), mount)
    assert (found["component2.stripe_count"], found["osts"], found["osts lustre.flash"]) == ("2", "2", "1")
    assert (programs / "log").read_text().splitlines() == [
        f"setstripe {ASKED_OF_LFS} --pool flash {programs}/d",
        f"getstripe --yaml {programs}/d/.layout",
        "size 1048577",
        "pool_list lustre.flash",
        f"osts {programs}/d",
    ]
    assert list((programs / "d").iterdir()) == []


def test_missing_interface_is_added_journalled_and_removed(programs: Path) -> None:
    (programs / "text").write_text(NETWORKS)
    program(programs, "lnetctl", LNETCTL.format(log=programs / "log", text=programs / "text", status=0))
    state = Attaching(LocalHost(), "lustre", 60)
    with lnet.added(state, "tcp(eth0,eth1),tcp1(eth0)", 4):
        entries = [entry.description for entry in Journal(LocalHost()).entries()]
        assert entries == ["LNet interface tcp1(eth0)"]
    assert Journal(LocalHost()).entries() == []
    assert (programs / "log").read_text().splitlines() == [
        "net show",
        "net show -v",
        "net add --net tcp1 --if eth0 --conns-per-peer 4",
        "net del --net tcp1 --if eth0",
    ]


def test_interface_that_lnet_refuses_is_an_error_of_the_client(programs: Path) -> None:
    (programs / "text").write_text(NETWORKS)
    program(programs, "lnetctl", LNETCTL.format(log=programs / "log", text=programs / "text", status=1))
    state = Attaching(LocalHost("c"), "lustre", 60)
    with (
        pytest.raises(ClientLacks, match=r"c: adding tcp1\(eth9\) to LNet failed"),
        lnet.added(state, "tcp1(eth9)", None),
    ):
        pytest.fail("added")
    assert Journal(LocalHost()).entries() == []
