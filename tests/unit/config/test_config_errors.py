# ruff: noqa: E501  # a row of a table is a line
"""config: each error in a file is reported in one line, with file:line:col and what to do."""

from __future__ import annotations

from textwrap import dedent

import pytest

from storagetest.errors import ConfigError

HEAD = "version: 1\n"
TARGET = HEAD + "targets:\n  t: {protocol: shelf, address: a, path: /a"
"""A file with one target of one line, left open: columns of what follows start at 46."""

OPTIONS = [
    ("version: 4.1", '3:55: targets.t.version: 4.1 is a number in YAML, not text: quote it: "4.1"'),
    ("version: 3", '3:55: targets.t.version: 3 is a number in YAML, not text: quote it: "3"'),
    (
        "version: no",
        "3:55: targets.t.version: no is a boolean in YAML; expected '3', '4.0', '4.1', '4.2' or 'none', in quotes",
    ),
    (
        "version: '4.3'",
        "3:55: targets.t.version: '4.3' is not '3', '4.0', '4.1', '4.2' or 'none'; did you mean '4.2'?",
    ),
    ("version: [x]", "3:55: targets.t.version: expected '3', '4.0', '4.1', '4.2' or 'none', not a list"),
    ("label: on", '3:53: targets.t.label: on is a boolean in YAML, not text: quote it: "on"'),
    ("label: 1.20", '3:53: targets.t.label: 1.20 is a number in YAML, not text: quote it: "1.20"'),
    ("label: 010", '3:53: targets.t.label: 010 is a number in YAML, not text: quote it: "010"'),
    (
        "label: 2026-11-01",
        '3:53: targets.t.label: 2026-11-01 is a date in YAML, not text: quote it: "2026-11-01"',
    ),
    ("label: ~", '3:53: targets.t.label: ~ is null in YAML, not text: quote it: "~"'),
    ("label: ", "3:52: targets.t.label: the value is missing; expected text"),
    ("label: {a: b}", "3:53: targets.t.label: expected text, not a mapping"),
    (
        "label: '${env:HOME}'",
        "3:53: targets.t.label: ${env:…} and ${file:…} are allowed only in a secret",
    ),
    ("nconnect: '2'", "3:56: targets.t.nconnect: expected a whole number, not text (2)"),
    ("nconnect: 2.5", "3:56: targets.t.nconnect: expected a whole number, not a number (2.5)"),
    ("nconnect: true", "3:56: targets.t.nconnect: expected a whole number, not a boolean (true)"),
    ("nconnect: 17", "3:56: targets.t.nconnect: must be less than or equal to 16 (17)"),
    (
        "nconnect: 010",
        '3:56: targets.t.nconnect: 010 is a number with an unusual YAML meaning; write it in full, or quote it: "010"',
    ),
    ("depth: many", "3:53: targets.t.depth: 'many' is not 'auto'"),
    ("hard: 1", "3:52: targets.t.hard: expected true or false, not a number (1)"),
    ("share: half", "3:53: targets.t.share: expected a number, not text (half)"),
    ("rsize: 64k", "3:53: targets.t.rsize: '64k': k is ambiguous: write 64KiB (1024) or 64kB (1000)"),
    ("rsize: 512", "3:53: targets.t.rsize: must be greater than or equal to 1024 (512)"),
    ("rsize: -1", "3:53: targets.t.rsize: expected a size, such as 64KiB or a number of bytes"),
    ("timeout: 5", None),
    ("timeout: '5'", "3:55: targets.t.timeout: '5' has no unit: write 5s or 5ms"),
    (
        "timeout: 5m",
        "3:55: targets.t.timeout: '5m' is not a duration such as 5ms or 10s: the units are ns, us, ms, s, min, h",
    ),
    ("deadline: 0s", "3:56: targets.t.deadline: must be greater than 0 (0s)"),
    ("port: 65536", "3:52: targets.t.port: must be less than or equal to 65535 (65536)"),
    ("flags: a", "3:53: targets.t.flags: expected a list, not text; write [ ] around it"),
    ("flags: [a, 1]", '3:57: targets.t.flags.1: 1 is a number in YAML, not text: quote it: "1"'),
    (
        "secret: 12345",
        "3:54: targets.t.secret: this is a number in YAML, not text: put it in quotes",
    ),
    ("secret: 010", "3:54: targets.t.secret: this is a number in YAML, not text: put it in quotes"),
    ("secret: ''", "3:54: targets.t.secret: the secret is empty"),
    (
        "secret: 'x${env:A}'",
        "3:54: targets.t.secret: a secret is plain text, or ${env:NAME} or ${file:PATH} as a whole",
    ),
    (
        "secret: '${env:}'",
        "3:54: targets.t.secret: a secret is plain text, or ${env:NAME} or ${file:PATH} as a whole",
    ),
    (
        "login: {username: u, pasword: p}",
        "3:67: targets.t.login.pasword: no such key; did you mean 'password'?",
    ),
    ("login: {username: u}", "3:46: targets.t.login.password: this is missing: The password"),
    ("login: u", "3:53: targets.t.login: expected a mapping (key: value), not text"),
    ("nconect: 2", "3:46: targets.t.nconect: no such key; did you mean 'nconnect'?"),
    ("matrx: {}", "3:46: targets.t.matrx: no such key; did you mean 'matrix'?"),
    ("optional: 'yes'", "3:56: targets.t.optional: expected true or false, not text (yes)"),
    ("client: her", "3:54: targets.t: unknown client 'her'; known: local"),
    ("clients: []", "3:55: targets.t.clients: expected a list of at least 1, not of 0"),
    ("clients: local", "3:55: targets.t.clients: expected a list, not text; write [ ] around it"),
    ("clients: [local, local]", "3:63: targets.t: the client 'local' is listed twice"),
    ("client: local, clients: [local]", "3:46: targets.t: client and clients are both set; remove one"),
    ("server: box", "3:54: targets.t: unknown server 'box'; none is defined"),
    ("exclude: []", "3:46: targets.t.exclude: requires a matrix"),
    (
        "thresholds: {stream: ['iops >= 5', 'iops >= 6']}",
        "3:81: targets.t.thresholds.stream: iops >= is gated twice, first at t.yaml:3:68",
    ),
]

MATRICES = [
    ("matrix: 3", "3:54: targets.t.matrix: expected a mapping (key: value), not a number"),
    ("matrix: {}", "3:54: targets.t.matrix: the matrix is empty; remove it"),
    (
        "matrix: {version: '3'}",
        "3:64: targets.t.matrix.version: expected a list, not text; write [ ] around it",
    ),
    (
        "matrix: {version: []}",
        "3:64: targets.t.matrix.version: the list is empty; remove the option, or give it a value",
    ),
    ("matrix: {version: ['3', '3']}", "3:70: targets.t.matrix.version: 3 is listed twice"),
    (
        "matrix: {version: ['3', 4.0]}",
        '3:70: targets.t.version: 4.0 is a number in YAML, not text: quote it: "4.0"',
    ),
    ("matrix: {vresion: ['3']}", "3:55: targets.t.matrix.vresion: no such option; did you mean 'version'?"),
    (
        "hard: true, matrix: {hard: [true]}",
        "3:67: targets.t.matrix.hard: the option is also fixed at t.yaml:3:46; remove one",
    ),
    (
        "matrix: {secret: [a]}",
        "3:55: targets.t.matrix.secret: a secret is not allowed in a matrix: the variants' ids would contain it",
    ),
    (
        "matrix: {login: [{username: a, password: b}]}",
        "3:55: targets.t.matrix.login: only an option with a plain value is allowed in a matrix",
    ),
    (
        "matrix: {address: [a, b]}",
        "3:55: targets.t.matrix.address: an address is not allowed in a matrix: write a target for each",
    ),
    (
        "matrix: {label: [192.0.2.7]}",
        "3:55: targets.t: the variant's id would show an address; write a target for each",
    ),
    (
        "matrix: {label: ['tcp 2001:db8::7']}",
        "3:55: targets.t: the variant's id would show an address; write a target for each",
    ),
    (
        "matrix: {label: [/a, '!a']}",
        "3:55: targets.t: a second variant would be called 't-labela' (see t.yaml:3:55); rename or drop one",
    ),
    (
        "matrix: {nconnect: [1, 16], version: ['3', '4.2']}",
        "3:84: targets.t: version 3 takes nconnect up to 8 (nconnect: 16, version: 3); remove it with `exclude`",
    ),
    ("nconnect: 16, version: '3'", "3:3: targets.t: version 3 takes nconnect up to 8"),
    (
        "matrix: {version: ['3']}, exclude: [{version: '4.0'}]",
        "3:82: targets.t.exclude.0: this drops nothing: the matrix holds no such combination",
    ),
    (
        "matrix: {nconnect: [3]}, exclude: [{nconnect: '3'}]",
        "3:81: targets.t.exclude.0: this drops nothing: the matrix holds no such combination",
    ),
    (
        "matrix: {version: ['3']}, exclude: [{hard: true}]",
        "3:83: targets.t.exclude.0.hard: the matrix has no such option; known: version",
    ),
    (
        "matrix: {version: ['3']}, exclude: [{version: '3'}]",
        "3:72: targets.t.exclude: nothing is left of the matrix",
    ),
    ("matrix: {version: ['3']}, exclude: [{}]", "3:82: targets.t.exclude.0: an empty mapping drops all"),
    (
        f"matrix: {{nconnect: {[*range(1, 13)]}, rsize: {[*range(1024, 1034)]}, label: [a, b, c, d, e, f, g, h, i]}}",
        "3:46: targets.t.matrix: 1080 combinations; at most 1000 are allowed",
    ),
]

FILES = [
    ("[1]", "1:1: the file: expected a mapping (key: value), not a list"),
    (
        "targets: {t: {protocol: shelf, address: a, path: /a}}",
        "1:1: version is missing: write version: 1 at the top",
    ),
    (
        "version: 2\ntargets: {t: {protocol: shelf, address: a, path: /a}}",
        "1:10: version: 2 is not known; this storagetest reads version: 1",
    ),
    (
        "version: yes\ntargets: {t: {protocol: shelf, address: a, path: /a}}",
        "1:10: version: yes is not known; this storagetest reads version: 1",
    ),
    ("version: 1", "1:1: targets is missing; name at least one target"),
    ("version: 1\ntargets: {}", "2:10: targets is empty; name at least one target"),
    ("version: 1\ntargets: [t]", "2:10: targets: expected a mapping (key: value), not a list"),
    ("version: 1\ntargets: {t: }", "2:13: targets.t: expected a mapping (key: value), not null"),
    ("version: 1\ntargets: {t: {}}", "2:14: targets.t.protocol: this is missing: drawer, shelf"),
    (
        "version: 1\ntargets: {t: {address: a}}",
        "2:11: targets.t.protocol: this is missing: How the target is reached",
    ),
    (
        "version: 1\ntargets: {t: {protocol: shlf}}",
        "2:25: targets.t.protocol: unknown protocol 'shlf'; did you mean 'shelf'?",
    ),
    ("version: 1\ntargets: {t: {protocol: drawer}}", "2:11: targets.t.number: this is missing: Which drawer"),
    (
        "version: 1\ntargets: {t: {protocol: drawer, number: 1, filesystem: ntfs}}",
        "2:56: targets.t.filesystem: 'ntfs' does not match '^(ext4|xfs)$'",
    ),
    (
        "version: 1\ntargets: {a.b: {protocol: drawer, number: 1}}",
        "2:11: targets.a.b: invalid name 'a.b': expected a letter or digit, then letters, digits, - and _",
    ),
    (
        "version: 1\ntargets: {t: {protocol: shelf, address: a, path: /a}, t: {protocol: drawer, number: 1}}",
        "2:55: 't' is written twice, first at t.yaml:2:11",
    ),
    (
        "version: 1\ntargets:\n  t: {protocol: shelf, address: a, path: /a, matrix: {hard: [true]}}\n  t-hard: {protocol: drawer, number: 1}",
        "4:3: targets.t-hard: a second variant would be called 't-hard' (see t.yaml:3:55); rename or drop one",
    ),
]

SECTIONS = [
    ("target: {}", "3:1: target: no such section; did you mean 'targets'?"),
    ("clients: {}", "3:10: clients: empty; remove the section, or name a host"),
    ("clients: {c: {address: a}}", "3:11: clients.c.transport: this is missing: local, ssh or slurm"),
    (
        "clients: {c: {transport: slurm}}",
        "3:11: clients.c.node: this is missing: Which of the job's nodes, counted from 0",
    ),
    (
        "clients: {c: {transport: slurm, node: 0, address: a}}",
        "3:42: clients.c.address: no such key; known: job, node, transport",
    ),
    (
        "clients: {c: {transport: shh, address: a}}",
        "3:26: clients.c.transport: shh is not local, ssh or slurm",
    ),
    (
        "clients: {c: {transport: ssh}}",
        "3:11: clients.c.address: this is missing: The host's name or IP address, or an alias that `ssh_config` resolves",
    ),
    (
        "clients: {c: {transport: local, address: a}}",
        "3:33: clients.c.address: no such key; known: transport",
    ),
    (
        "clients: {c: {transport: ssh, address: '-oProxyCommand=x'}}",
        "3:40: clients.c.address: '-oProxyCommand=x' is neither a host's name nor an IP address",
    ),
    (
        "clients: {c: {transport: ssh, address: 'a:22'}}",
        "3:40: clients.c.address: 'a:22' is neither a host's name nor an IP address; the port is in `port`, and an IPv6 address has no brackets",
    ),
    (
        "clients: {c: {transport: ssh, address: a, port: 0}}",
        "3:49: clients.c.port: must be greater than or equal to 1 (0)",
    ),
    (
        "clients: {c: {transport: ssh, address: a, host_key_chek: no}}",
        "3:43: clients.c.host_key_chek: no such key; did you mean 'host_key_check'?",
    ),
    (
        "clients: {c: {transport: ssh, address: a, password: [x]}}",
        "3:53: clients.c.password: expected text, not a list",
    ),
    (
        "clients: {c: {transport: ssh, address: a, key: 7}}",
        '3:48: clients.c.key: 7 is a number in YAML, not text: quote it: "7"',
    ),
    (
        "clients: {c: {transport: ssh, address: a, jump: d}}",
        "3:49: clients.c.jump: unknown client or server 'd'; known: c",
    ),
    (
        "clients: {c: {transport: ssh, address: a, jump: c}}",
        "3:49: clients.c.jump: the jumps go in a circle: c → c",
    ),
    (
        "clients: {c: {transport: ssh, address: a, jump: d}, d: {transport: ssh, address: a, jump: c}}",
        "3:91: clients.d.jump: the jumps go in a circle: c → d → c",
    ),
    (
        "clients: {c: {transport: ssh, address: a, jump: l}, l: {transport: local}}",
        "3:49: clients.c.jump: 'l' is not reached over ssh, so nothing can go through it",
    ),
    (
        "clients: {c: {transport: ssh, address: a, jump: {user: u}}}",
        "3:43: clients.c.jump.address: this is missing: The host's name or IP address, or an alias that `ssh_config` resolves",
    ),
    (
        "clients: {c: {transport: ssh, address: a, jump: 3}}",
        '3:49: clients.c.jump: 3 is a number in YAML, not text: quote it: "3"',
    ),
    (
        "servers: {'s p': {transport: local}}",
        "3:11: servers.s p: invalid name 's p': expected a letter or digit, then letters, digits, - and _",
    ),
    ("profiles: {smoke: {runtime: 0}}", "3:29: profiles.smoke.runtime: must be greater than 0 (0)"),
    ("profiles: {smoke: {runtme: 1s}}", "3:20: profiles.smoke.runtme: no such key; did you mean 'runtime'?"),
    (
        "profiles: {mine: {repeats: 5, max_repeats: 4}}",
        "3:44: profiles.mine.max_repeats: 4 is less than repeats, 5",
    ),
    (
        "profiles: {mine: {repeats: 3 runs}}",
        "3:28: profiles.mine.repeats: expected a whole number, not text (3 runs)",
    ),
    ("thresholds: {strem: ['iops >= 5']}", "3:14: unknown workload 'strem'; did you mean 'stream'?"),
    (
        "thresholds: {'stream[': ['iops >= 5']}",
        "3:14: 'stream[' is not a workload, or workload[parameter=value,…]",
    ),
    (
        "thresholds: {'stream[read]': ['iops >= 5']}",
        "3:14: 'stream[read]': expected [parameter=value,…], each parameter once",
    ),
    (
        "thresholds: {'stream[]': ['iops >= 5']}",
        "3:14: 'stream[]': expected [parameter=value,…], each parameter once",
    ),
    (
        "thresholds: {'stream[dir=read]': ['iops >= 5']}",
        "3:14: stream has no parameter 'dir'; known: block_size, depth, direction",
    ),
    (
        "thresholds: {'stream[direction=up]': ['iops >= 5']}",
        "3:14: direction=up is not a value that stream takes",
    ),
    (
        "thresholds: {stream: 'iops >= 5'}",
        "3:22: thresholds.stream: expected a list, not text; write [ ] around it",
    ),
    (
        "thresholds: {stream: [5]}",
        '3:23: thresholds.stream: a threshold is text such as "iops >= 20000", not a number',
    ),
]


def check(load_text, text, message):
    if message is None:
        load_text(text)
        return
    with pytest.raises(ConfigError) as caught:
        load_text(text)
    assert str(caught.value) == f"t.yaml:{message}"
    assert str(caught.value).startswith(f"{caught.value.place}: ")


@pytest.mark.parametrize(("option", "message"), OPTIONS + MATRICES)
def test_target(load_text, option, message):
    check(load_text, f"{TARGET}, {option}}}", message)


@pytest.mark.parametrize(("text", "message"), FILES)
def test_file(load_text, text, message):
    check(load_text, text, message)


@pytest.mark.parametrize(("section", "message"), SECTIONS)
def test_section(load_text, section, message):
    check(load_text, f"version: 1\ntargets: {{t: {{protocol: drawer, number: 1}}}}\n{section}", message)


@pytest.mark.parametrize("gate", ["nonsense", "iops > 5", "iosp >= 5", "p99 <= 5", "bandwidth >= 50", ">= 5"])
def test_a_gate_that_means_nothing_is_refused_at_its_place(load_text, gate):
    with pytest.raises(ConfigError) as caught:
        load_text(
            f"version: 1\ntargets: {{t: {{protocol: drawer, number: 1}}}}\nthresholds: {{stream: ['{gate}']}}"
        )
    assert caught.value.place == "t.yaml:3:23"


def test_all_errors_are_reported_at_once_in_the_order_of_the_file(load_text):
    text = dedent("""\
        version: 1
        targets:
          a: {protocol: shelf, address: a, path: a, nconnect: x}
          b: {protocol: nothing}
        clients:
          c: {transport: ssh}
        """)
    with pytest.raises(ConfigError) as caught:
        load_text(text)
    assert caught.value.place == "t.yaml:3:42"
    assert [line.split(" ")[0] for line in str(caught.value).splitlines()] == [
        "t.yaml:3:42:",
        "t.yaml:3:55:",
        "t.yaml:4:17:",
        "t.yaml:6:3:",
    ]


def test_an_invalid_fixed_option_is_reported_once_for_all_variants(load_text):
    with pytest.raises(ConfigError) as caught:
        load_text(f"{TARGET}, port: 0, matrix: {{version: ['3', '4.0', '4.1']}}}}")
    assert len(str(caught.value).splitlines()) == 1
