# ruff: noqa: E501  # a row of a table is a line
"""config: each error in a file is reported in one line, with file:line:col and what to do."""

from textwrap import dedent

import pytest

TARGET = "version: 1\ntargets:\n  t: {protocol: shelf, address: a, path: /a"
"""A file with one target of one line, left open: columns of what follows start at 46."""
DRAWER = "version: 1\ntargets: {t: {protocol: drawer, number: 1}}\n"

# What follows TARGET, the column of the error, and the message after the target's name.
OPTIONS = [
    ("version: 4.1", 55, '.version: 4.1 is a number in YAML, not text: quote it: "4.1"'),
    ("version: 3", 55, '.version: 3 is a number in YAML, not text: quote it: "3"'),
    ("version: no", 55, ".version: no is a boolean in YAML; expected '3', '4.0', '4.1', '4.2' or 'none', in quotes"),
    ("version: '4.3'", 55, ".version: '4.3' is not '3', '4.0', '4.1', '4.2' or 'none'; did you mean '4.2'?"),
    ("version: [x]", 55, ".version: expected '3', '4.0', '4.1', '4.2' or 'none', not a list"),
    ("label: on", 53, '.label: on is a boolean in YAML, not text: quote it: "on"'),
    ("label: 1.20", 53, '.label: 1.20 is a number in YAML, not text: quote it: "1.20"'),
    ("label: 010", 53, '.label: 010 is a number in YAML, not text: quote it: "010"'),
    ("label: 2026-11-01", 53, '.label: 2026-11-01 is a date in YAML, not text: quote it: "2026-11-01"'),
    ("label: ~", 53, '.label: ~ is null in YAML, not text: quote it: "~"'),
    ("label: ", 52, ".label: the value is missing; expected text"),
    ("label: {a: b}", 53, ".label: expected text, not a mapping"),
    ("label: '${env:HOME}'", 53, ".label: a reference is allowed only in a secret: ${env:NAME} or ${file:PATH}"),
    ("label: '${env:HOME'", 53, ".label: a reference is allowed only in a secret: ${env:NAME} or ${file:PATH}"),
    ("label: 'a${nope:HOME}'", 53, ".label: a reference is allowed only in a secret: ${env:NAME} or ${file:PATH}"),
    ('label: "a\\0b"', 53, ".label: a NUL character is not allowed"),
    ("nconnect: '2'", 56, ".nconnect: expected a whole number, not text (2)"),
    ("nconnect: 2.5", 56, ".nconnect: expected a whole number, not a number (2.5)"),
    ("nconnect: true", 56, ".nconnect: expected a whole number, not a boolean (true)"),
    ("nconnect: 17", 56, ".nconnect: must be less than or equal to 16 (17)"),
    ("nconnect: 010", 56, '.nconnect: 010 is a number with an unusual YAML meaning; write it in full, or quote it: "010"'),
    ("depth: many", 53, ".depth: 'many' is not 'auto'"),
    ("hard: 1", 52, ".hard: expected true or false, not a number (1)"),
    ("share: half", 53, ".share: expected a number, not text (half)"),
    ("rsize: 64k", 53, ".rsize: '64k': k is ambiguous: write 64KiB (1024) or 64kB (1000)"),
    ("rsize: 512", 53, ".rsize: must be greater than or equal to 1024 (512)"),
    ("rsize: -1", 53, ".rsize: expected a size, such as 64KiB or a number of bytes"),
    ("rsize: 1000000000000000000000000000000", 53, ".rsize: larger than the largest offset of a file, 8EiB"),
    ("rsize: 8388608TiB", 53, ".rsize: larger than the largest offset of a file, 8EiB"),
    ("timeout: 5", 55, ".timeout: 5 has no unit: write 5s or 5ms"),
    ("timeout: 0.5", 55, ".timeout: 0.5 has no unit: write 0.5s or 0.5ms"),
    ("timeout: -1", 55, ".timeout: expected a duration, such as 500ms or 10s"),
    ("matrix: {timeout: [1s, 3]}", 69, ".timeout: 3 has no unit: write 3s or 3ms"),
    ("timeout: '5'", 55, ".timeout: '5' has no unit: write 5s or 5ms"),
    ("timeout: 5m", 55, ".timeout: '5m' is not a duration such as 5ms or 10s: the units are ns, us, ms, s, min, h"),
    ("deadline: 0s", 56, ".deadline: must be greater than 0 (0s)"),
    ("port: 65536", 52, ".port: must be less than or equal to 65535 (65536)"),
    ("flags: a", 53, ".flags: expected a list, not text; write [ ] around it"),
    ("flags: [a, 1]", 57, '.flags.1: 1 is a number in YAML, not text: quote it: "1"'),
    ("secret: 12345", 54, ".secret: this is a number in YAML, not text: put it in quotes"),
    ("secret: 010", 54, ".secret: this is a number in YAML, not text: put it in quotes"),
    ("secret: ''", 54, ".secret: the secret is empty"),
    ("secret: 'x${env:A}'", 54, ".secret: a secret is plain text, or ${env:NAME} or ${file:PATH} as a whole"),
    ("secret: '${env:}'", 54, ".secret: a secret is plain text, or ${env:NAME} or ${file:PATH} as a whole"),
    ("login: {username: u, pasword: p}", 67, ".login.pasword: no such key; did you mean 'password'?"),
    ("login: {username: u}", 46, ".login.password: this is missing: The password"),
    ("login: u", 53, ".login: expected a mapping (key: value), not text"),
    ("nconect: 2", 46, ".nconect: no such key; did you mean 'nconnect'?"),
    ("matrx: {}", 46, ".matrx: no such key; did you mean 'matrix'?"),
    ("optional: 'yes'", 56, ".optional: expected true or false, not text (yes)"),
    ("client: her", 54, ": unknown client 'her'; known: local"),
    ("clients: []", 55, ".clients: expected a list of at least 1, not of 0"),
    ("clients: local", 55, ".clients: expected a list, not text; write [ ] around it"),
    ("clients: [local, local]", 63, ": the client 'local' is listed twice"),
    ("client: local, clients: [local]", 46, ": client and clients are both set; remove one"),
    ("server: box", 54, ": unknown server 'box'; none is defined"),
    ("exclude: []", 46, ".exclude: requires a matrix"),
    ("thresholds: {stream: ['iops >= 5', 'iops >= 6']}", 81, ".thresholds.stream: iops >= is gated twice, first at t.yaml:3:68"),
]  # fmt: skip

MATRICES = [
    ("matrix: 3", 54, ".matrix: expected a mapping (key: value), not a number"),
    ("matrix: {}", 54, ".matrix: the matrix is empty; remove it"),
    ("matrix: {version: '3'}", 64, ".matrix.version: expected a list, not text; write [ ] around it"),
    ("matrix: {version: []}", 64, ".matrix.version: the list is empty; remove the option, or give it a value"),
    ("matrix: {version: ['3', '3']}", 70, ".matrix.version: 3 is listed twice"),
    ("matrix: {version: ['3', 4.0]}", 70, '.version: 4.0 is a number in YAML, not text: quote it: "4.0"'),
    ("matrix: {vresion: ['3']}", 55, ".matrix.vresion: no such option; did you mean 'version'?"),
    ("hard: true, matrix: {hard: [true]}", 67, ".matrix.hard: the option is also fixed at t.yaml:3:46; remove one"),
    ("matrix: {secret: [a]}", 55, ".matrix.secret: a secret is not allowed in a matrix: the variants' ids would contain it"),
    ("matrix: {login: [{username: a, password: b}]}", 55, ".matrix.login: only an option with a plain value is allowed in a matrix"),
    ("matrix: {address: [a, b]}", 55, ".matrix.address: an address is not allowed in a matrix: write a target for each"),
    ("matrix: {label: [192.0.2.7]}", 55, ": the variant's id would show an address; write a target for each"),
    ("matrix: {label: ['tcp 2001:db8::7']}", 55, ": the variant's id would show an address; write a target for each"),
    ("matrix: {label: [/a, '!a']}", 55, ": a second variant would be called 't-labela' (see t.yaml:3:55); rename or drop one"),
    ("matrix: {nconnect: [1, 16], version: ['3', '4.2']}", 84, ": version 3 takes nconnect up to 8 (nconnect: 16, version: 3); remove it with `exclude`"),
    ("nconnect: 16, version: '3'", 3, ": version 3 takes nconnect up to 8"),
    ("matrix: {version: ['3']}, exclude: [{version: '4.0'}]", 82, ".exclude.0: this drops nothing: the matrix holds no such combination"),
    ("matrix: {nconnect: [3]}, exclude: [{nconnect: '3'}]", 81, ".exclude.0: this drops nothing: the matrix holds no such combination"),
    ("matrix: {version: ['3']}, exclude: [{hard: true}]", 83, ".exclude.0.hard: the matrix has no such option; known: version"),
    ("matrix: {version: ['3']}, exclude: [{version: '3'}]", 72, ".exclude: nothing is left of the matrix"),
    ("matrix: {version: ['3']}, exclude: [{}]", 82, ".exclude.0: an empty mapping drops all"),
    (f"matrix: {{nconnect: {[*range(1, 13)]}, rsize: {[*range(1024, 1034)]}, label: [a, b, c, d, e, f, g, h, i]}}", 46, ".matrix: 1080 combinations; at most 1000 are allowed"),
]  # fmt: skip

FILES = [
    ("[1]", "1:1: the file: expected a mapping (key: value), not a list"),
    ("targets: {t: {protocol: shelf, address: a, path: /a}}", "1:1: version is missing: write version: 1 at the top"),
    ("version: 2\ntargets: {t: {protocol: shelf, address: a, path: /a}}", "1:10: version: 2 is not known; this storagetest reads version: 1"),
    ("version: yes\ntargets: {t: {protocol: shelf, address: a, path: /a}}", "1:10: version: yes is not known; this storagetest reads version: 1"),
    ("version: 1", "1:1: targets is missing; name at least one target"),
    ("version: 1\ntargets: {}", "2:10: targets is empty; name at least one target"),
    ("version: 1\ntargets: [t]", "2:10: targets: expected a mapping (key: value), not a list"),
    ("version: 1\ntargets: {t: }", "2:13: targets.t: expected a mapping (key: value), not null"),
    ("version: 1\ntargets: {t: {}}", "2:14: targets.t.protocol: this is missing: drawer, shelf"),
    ("version: 1\ntargets: {t: {address: a}}", "2:11: targets.t.protocol: this is missing: How the target is reached"),
    ("version: 1\ntargets: {t: {protocol: shlf}}", "2:25: targets.t.protocol: unknown protocol 'shlf'; did you mean 'shelf'?"),
    ("version: 1\ntargets: {t: {protocol: drawer}}", "2:11: targets.t.number: this is missing: Which drawer"),
    ("version: 1\ntargets: {t: {protocol: drawer, number: 1, filesystem: ntfs}}", "2:56: targets.t.filesystem: 'ntfs' does not match '^(ext4|xfs)$'"),
    ("version: 1\ntargets: {a.b: {protocol: drawer, number: 1}}", "2:11: targets.a.b: invalid name 'a.b': expected a letter or digit, then letters, digits, - and _"),
    ("version: 1\ntargets: {t: {protocol: shelf, address: a, path: /a}, t: {protocol: drawer, number: 1}}", "2:55: 't' is written twice, first at t.yaml:2:11"),
    ("version: 1\ntargets:\n  t: {protocol: shelf, address: a, path: /a, matrix: {hard: [true]}}\n  t-hard: {protocol: drawer, number: 1}", "4:3: targets.t-hard: a second variant would be called 't-hard' (see t.yaml:3:55); rename or drop one"),
]  # fmt: skip

SECTIONS = [
    ("target: {}", "3:1: target: no such section; did you mean 'targets'?"),
    ("clients: {}", "3:10: clients: empty; remove the section, or name a host"),
    ("clients: {c: {address: a}}", "3:11: clients.c.transport: this is missing: local, ssh or slurm"),
    ("clients: {c: {transport: slurm}}", "3:11: clients.c.node: this is missing: Which of the job's nodes, counted from 0"),
    ("clients: {c: {transport: slurm, node: 0, address: a}}", "3:42: clients.c.address: no such key; known: job, node, transport"),
    ("clients: {c: {transport: shh, address: a}}", "3:26: clients.c.transport: shh is not local, ssh or slurm"),
    ("clients: {c: {transport: ssh}}", "3:11: clients.c.address: this is missing: The host's name or IP address, or an alias that `ssh_config` resolves"),
    ("clients: {c: {transport: local, address: a}}", "3:33: clients.c.address: no such key; known: transport"),
    ("clients: {c: {transport: ssh, address: '-oProxyCommand=x'}}", "3:40: clients.c.address: '-oProxyCommand=x' is neither a host's name nor an IP address"),
    ("clients: {c: {transport: ssh, address: 'a:22'}}", "3:40: clients.c.address: 'a:22' is neither a host's name nor an IP address; the port is in `port`, and an IPv6 address has no brackets"),
    ("clients: {c: {transport: ssh, address: a, port: 0}}", "3:49: clients.c.port: must be greater than or equal to 1 (0)"),
    ("clients: {c: {transport: ssh, address: a, host_key_chek: no}}", "3:43: clients.c.host_key_chek: no such key; did you mean 'host_key_check'?"),
    ("clients: {c: {transport: ssh, address: a, password: [x]}}", "3:53: clients.c.password: expected text, not a list"),
    ("clients: {c: {transport: ssh, address: a, key: 7}}", '3:48: clients.c.key: 7 is a number in YAML, not text: quote it: "7"'),
    ("clients: {c: {transport: ssh, address: a, jump: d}}", "3:49: clients.c.jump: unknown client or server 'd'; known: c"),
    ("clients: {c: {transport: ssh, address: a, jump: c}}", "3:49: clients.c.jump: the jumps go in a circle: c → c"),
    ("clients: {c: {transport: ssh, address: a, jump: d}, d: {transport: ssh, address: a, jump: c}}", "3:91: clients.d.jump: the jumps go in a circle: c → d → c"),
    ("clients: {c: {transport: ssh, address: a, jump: l}, l: {transport: local}}", "3:49: clients.c.jump: 'l' is not reached over ssh, so nothing can go through it"),
    ("clients: {c: {transport: ssh, address: a, jump: {user: u}}}", "3:43: clients.c.jump.address: this is missing: The host's name or IP address, or an alias that `ssh_config` resolves"),
    ("clients: {c: {transport: ssh, address: a, jump: 3}}", '3:49: clients.c.jump: 3 is a number in YAML, not text: quote it: "3"'),
    ("servers: {'s p': {transport: local}}", "3:11: servers.s p: invalid name 's p': expected a letter or digit, then letters, digits, - and _"),
    ("profiles: {smoke: {runtime: 0}}", "3:29: profiles.smoke.runtime: must be greater than 0 (0)"),
    ("profiles: {smoke: {runtime: 5}}", "3:29: profiles.smoke.runtime: 5 has no unit: write 5s or 5ms"),
    ("profiles: {smoke: {runtme: 1s}}", "3:20: profiles.smoke.runtme: no such key; did you mean 'runtime'?"),
    ("profiles: {mine: {repeats: 5, max_repeats: 4}}", "3:44: profiles.mine.max_repeats: 4 is less than repeats, 5"),
    ("profiles: {mine: {repeats: 3 runs}}", "3:28: profiles.mine.repeats: expected a whole number, not text (3 runs)"),
    ("thresholds: {strem: ['iops >= 5']}", "3:14: unknown workload 'strem'; did you mean 'stream'?"),
    ("thresholds: {'stream[': ['iops >= 5']}", "3:14: 'stream[' is not a workload, or workload[parameter=value,…]"),
    ("thresholds: {'stream[read]': ['iops >= 5']}", "3:14: 'stream[read]': expected [parameter=value,…], each parameter once"),
    ("thresholds: {'stream[]': ['iops >= 5']}", "3:14: 'stream[]': expected [parameter=value,…], each parameter once"),
    ("thresholds: {'stream[dir=read]': ['iops >= 5']}", "3:14: stream has no parameter 'dir'; known: block_size, depth, direction"),
    ("thresholds: {'stream[direction=up]': ['iops >= 5']}", "3:14: direction=up is not a value that stream takes"),
    ("thresholds: {stream: 'iops >= 5'}", "3:22: thresholds.stream: expected a list, not text; write [ ] around it"),
    ("thresholds: {stream: [5]}", '3:23: thresholds.stream: a threshold is text such as "iops >= 20000", not a number'),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *(
            (f"{TARGET}, {option}}}", f"3:{column}: targets.t{rest}")
            for option, column, rest in OPTIONS + MATRICES
        ),
        *FILES,
        *((f"{DRAWER}{section}", message) for section, message in SECTIONS),
    ],
)
def test_an_error_is_one_line_with_its_location(error_of, text, message):
    error = error_of(text)
    assert str(error) == f"t.yaml:{message}"
    assert str(error).startswith(f"{error.place}: ")


@pytest.mark.parametrize("gate", ["nonsense", "iops > 5", "iosp >= 5", "p99 <= 5", "bandwidth >= 50", ">= 5"])
def test_a_gate_that_means_nothing_is_refused_at_its_place(error_of, gate):
    assert error_of(f"{DRAWER}thresholds: {{stream: ['{gate}']}}").place == "t.yaml:3:23"


def test_all_errors_are_reported_at_once_in_the_order_of_the_file(error_of):
    text = dedent("""\
        version: 1
        targets:
          a: {protocol: shelf, address: a, path: a, nconnect: x}
          b: {protocol: nothing}
        clients:
          c: {transport: ssh}
        """)
    error = error_of(text)
    assert error.place == "t.yaml:3:42"
    places = [line.split(": ")[0] for line in str(error).splitlines()]
    assert places == ["t.yaml:3:42", "t.yaml:3:55", "t.yaml:4:17", "t.yaml:6:3"]


def test_an_invalid_fixed_option_is_reported_once_for_all_variants(error_of):
    error = error_of(f"{TARGET}, port: 0, matrix: {{version: ['3', '4.0', '4.1']}}}}")
    assert len(str(error).splitlines()) == 1
