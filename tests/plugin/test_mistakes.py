"""Mistakes of a user get one clear message."""

import io

import pytest
from pytest_results import assert_usage_error

from storagetest.cli import main

GOOD = """\
version: 1
clients:
  load1: {transport: local}
targets:
  nas:
    protocol: nfs
    address: nas.example.com
    export: /tank
    clients: [load1]
"""
SHARE = GOOD.replace("nfs", "smb").replace(
    "export: /tank", "share: s\n    username: u\n    password: $SMB_PASSWORD"
)
DISK = GOOD.replace("nfs", "nvme-tcp").replace("export: /tank", "nqn: nqn.2026-11.org.example:disk")
LIST = ["targets"]


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


def extended(text: str) -> str:
    return f"{GOOD}{text}\n"


ERRORS = [
    ("no file", None, LIST, 4,
     ("no such file: targets.yaml; `storagetest init ADDRESS` writes a first one for a machine of yours, "
     "`storagetest lab up` one for a lab")),
    ("empty file", "", LIST, 4, "targets.yaml:1:1: the file is empty"),
    ("tab", changed("  load1:", "\tload1:"), LIST, 4,
     "targets.yaml:3:1: not YAML: a tab where only spaces may indent"),
    ("no version", changed("version: 1\n", ""), LIST, 4,
     "targets.yaml:1:1: version is missing: write version: 1 at the top"),
    ("misspelt section", changed("targets:", "target:"), LIST, 4,
     "targets.yaml:4:1: target: no such section; did you mean 'targets'?"),
    ("misspelt protocol", changed("protocol: nfs", "protocol: nsf"), LIST, 4,
     "targets.yaml:6:15: targets.nas.protocol: unknown protocol 'nsf'; did you mean 'nfs'?"),
    ("misspelt option", changed("address", "adress"), LIST, 4,
     "targets.yaml:7:5: targets.nas.adress: no such key; did you mean 'address'?"),
    ("missing option", changed("    export: /tank\n", ""), LIST, 4,
     "targets.yaml:5:3: targets.nas.export: this is missing: The path to mount"),
    ("unquoted version", changed("/tank", "/tank\n    version: 4.2"), LIST, 4,
     'targets.yaml:9:14: targets.nas.version: 4.2 is a number in YAML, not text: quote it: "4.2"'),
    ("key twice", changed("/tank", "/tank\n    export: /b"), LIST, 4,
     "targets.yaml:9:5: 'export' is written twice, first at targets.yaml:8:5"),
    ("port in the address", changed("example.com", "example.com:2049"), LIST, 4,
     ("targets.yaml:7:14: targets.nas.address: 'nas.example.com:2049' is neither a host's name nor an IP "
     "address; the port is in `port`, and an IPv6 address has no brackets")),
    ("URL for an address", changed("nas.example.com", "nfs://nas/tank"), LIST, 4,
     ("targets.yaml:7:14: targets.nas.address: 'nfs://nas/tank' is neither a host's name nor an IP address; "
     "write it without a protocol and without a path")),
    ("relative export", changed("/tank", "tank"), LIST, 4,
     "targets.yaml:8:13: targets.nas.export: 'tank' does not begin with '/'"),
    ("unknown client", changed("[load1]", "[load2]"), LIST, 4,
     "targets.yaml:9:15: targets.nas: unknown client 'load2'; did you mean 'load1'?"),
    ("client as text", changed("{transport: local}", "load1.example.com"), LIST, 4,
     "targets.yaml:3:10: clients.load1: expected a mapping (key: value), not text"),
    ("clients as a list", changed("clients:\n  load1: {transport: local}", "clients: [load1]"), LIST, 4,
     "targets.yaml:2:10: clients: expected a mapping (key: value), not a list"),
    ("no transport", changed("{transport: local}", "{address: load1}"), LIST, 4,
     "targets.yaml:3:3: clients.load1.transport: this is missing: local, ssh or slurm"),
    ("matrix without a list", changed("/tank", "/tank\n    matrix: {nconnect: 4}"), LIST, 4,
     "targets.yaml:9:24: targets.nas.matrix.nconnect: expected a list, not a number; write [ ] around it"),
    ("shell variable for a secret", SHARE, LIST, 4,
     ("targets.yaml:10:15: targets.nas.password: this is how a shell names a variable: write ${env:NAME}; a "
     "secret that really begins so goes into a file, ${file:PATH}")),
    ("reference outside a secret", changed("/tank", "/${env:TANK"), LIST, 4,
     ("targets.yaml:8:13: targets.nas.export: a reference is allowed only in a secret: ${env:NAME} or "
     "${file:PATH}")),
    ("pattern for an identity", DISK + '    erase: "*"\n', LIST, 4,
     ("targets.yaml:10:12: targets.nas.erase: expected the whole identity of one device; a pattern is not "
     "allowed")),
    ("namespace of all", DISK + "    namespace: 4294967295\n", LIST, 4,
     "targets.yaml:10:16: targets.nas.namespace: must be less than or equal to 4294967294 (4294967295)"),
    ("gate without unit", extended('thresholds: {sequential: ["p99 <= 5"]}'), LIST, 4,
     "targets.yaml:10:27: threshold 'p99 <= 5': '5' has no unit: write 5s or 5ms"),
    ("misspelt metric", extended('thresholds: {sequential: ["iosp >= 5"]}'), LIST, 4,
     "targets.yaml:10:27: threshold 'iosp >= 5': unknown metric 'iosp'; did you mean 'iops'?"),
    ("misspelt workload", extended('thresholds: {seqential: ["iops >= 5"]}'), LIST, 4,
     "targets.yaml:10:14: unknown workload 'seqential'; did you mean 'sequential'?"),
    ("gate with >", extended('thresholds: {sequential: ["iops > 5"]}'), LIST, 4,
     "targets.yaml:10:27: threshold 'iops > 5': unknown operator '>': write iops >= 5"),
    ("size 1G", extended("profiles: {quick: {size: 1G}}"), LIST, 4,
     "targets.yaml:10:26: profiles.quick.size: '1G': G is ambiguous: write 1GiB (1024) or 1GB (1000)"),
    ("misspelt profile", GOOD, [*LIST, "--profile", "somke"], 4,
     "unknown profile 'somke'; did you mean 'smoke'?"),
    ("override of nothing", GOOD, [*LIST, "--set", "targets.nsa.export=/x"], 4,
     "--set targets.nsa.export: no such key 'nsa'; did you mean 'nas'?"),
    ("no such suite", GOOD, ["targets", "suite"], 1, "no such suite: suite"),
    ("check of no client", GOOD, ["check", "--client", "c9"], 4,
     "--client c9: no such client. Clients: load1"),
    ("check of no target", GOOD, ["check", "--target", "smb*"], 4,
     "--target smb*: matches no variant; `storagetest targets` lists them"),
    ("init without an address", None, ["init"], 1,
     "the address of the storage is missing: storagetest init ADDRESS"),
    ("init over a file", GOOD, ["init", "nas"], 1,
     "targets.yaml already exists: name another file with -o, or overwrite it with --force"),
    ("init of no protocol", None, ["init", "nas", "--protocol", "cifs"], 4,
     "no such entry in protocols: 'cifs'; available: iscsi, local, lustre, nfs, nvme-tcp, smb"),
    ("misspelt command", GOOD, ["chekc"], 2, "error: invalid choice 'chekc'; did you mean 'check'?"),
    ("no command", GOOD, [], 2, "error: a command is missing; `storagetest --help` lists the commands"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "argv", "status", "sentence"),
    [error[1:] for error in ERRORS],
    ids=[error[0].replace(" ", "-") for error in ERRORS],
)
def test_an_error_is_one_sentence(text, argv, status, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    if text is not None:
        (tmp_path / "targets.yaml").write_text(text)
    try:
        code = main(argv)
    except SystemExit as error:  # raised by argparse
        code = error.code
    output = capsys.readouterr()
    assert output.out == ""
    assert code == status
    assert output.err.splitlines()[-1] == f"storagetest: {sentence}"
    if not sentence.startswith("error: "):  # argparse prints the usage first
        assert len(output.err.splitlines()) == 1


def test_a_missing_secret_is_found_before_it_is_needed(tmp_path, monkeypatch, capsys):
    text = SHARE.replace("$SMB_PASSWORD", "${env:NOT_SET_ANYWHERE}").replace("nas.example.com", "127.0.0.1")
    (tmp_path / "targets.yaml").write_text(text.replace("share: s", "share: s\n    port: 1"))
    monkeypatch.chdir(tmp_path)
    assert main(["check", "--no-attach"]) == 1
    output = " ".join(capsys.readouterr().out.split())
    assert "targets.yaml:11:15" in output
    assert "NOT_SET_ANYWHERE" in output


@pytest.mark.parametrize(
    ("arguments", "more", "parts"),
    [
        ([], "tresholds: {}", ["targets.yaml:9:1", "tresholds", "thresholds"]),
        (["--st-target", "nsf*"], "", ["--st-target nsf*", "matches no variant"]),
        (["--st-client", "c9"], "", ["--st-client c9", "here"]),
        (["--st-profile", "huge"], "", ["huge", "smoke"]),
        (["--st-set", "targets.disc.path=/tmp"], "", ["disc"]),
        ([], 'thresholds: {small-random-write: ["iopz >= 1"]}', ["iopz", "iops", "targets.yaml:9:"]),
    ],
    ids=["key", "target", "client", "profile", "override", "metric"],
)
def test_an_unknown_name_is_reported_with_what_is_known(run_pytest, arguments, more, parts):
    assert_usage_error(run_pytest(*arguments, more=more), *parts)


def test_a_missing_targets_file(pytester):
    pytester.makepyfile("def test_x(variant): pass")
    assert_usage_error(pytester.runpytest_inprocess(), "targets.yaml", "storagetest lab up")


def test_another_project_is_not_affected(pytester):
    pytester.makepyfile("def test_x(): pass")
    result = pytester.runpytest_subprocess()  # a process that loads the plugin by its entry point
    result.assert_outcomes(passed=1)
    assert "storagetest-" in result.stdout.str()
    assert "storagetest" not in "\n".join(line for line in result.outlines if not line.startswith("plugins:"))
    assert not (pytester.path / "results.jsonl").exists()


def test_collection_contacts_no_host(run_pytest):
    targets = """\
version: 1
clients:
  far: {transport: ssh, address: 192.0.2.1, user: tester}
targets:
  nas: {protocol: nfs, address: 192.0.2.2, export: /x, clients: [far], matrix: {version: ["3", "4.2"]}}
"""
    result = run_pytest("--collect-only", "-q", "--st-profile", "smoke", targets=targets)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*test_writes?nas-v3?", "*test_writes?nas-v4.2?"])


IMPORT = "import pytest\n"
NO_WARNING = ("-W", "ignore::pytest.PytestUnknownMarkWarning")


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        ('gates("iops >= 1")', "@pytest.mark.gates is not a registered mark; did you mean 'gate'?"),
        ('need("block")', "@pytest.mark.need is not a registered mark; did you mean 'needs'?"),
        ("needs()", "@pytest.mark.needs names no capability, such as 'filesystem'"),
        ("gate()", "@pytest.mark.gate has no threshold, such as 'iops >= 20000'"),
        ('needs("filesytem")', "no protocol has the capability 'filesytem'; did you mean 'filesystem'?"),
    ],
)
def test_mark_without_effect_ends_the_run_before_a_case(run_pytest, mark, message):
    result = run_pytest(*NO_WARNING, suite=f"{IMPORT}@pytest.mark.{mark}\ndef test_a(attachment): pass\n")
    assert_usage_error(result, f"{message}\n")


@pytest.mark.parametrize("mark", ["flaky", "needs('iscsi-wire', 'two_clients')", "slow"])
def test_other_marks_are_not_refused(run_pytest, mark):
    suite = f"{IMPORT}@pytest.mark.{mark}\ndef test_a(attachment): pass\ndef test_b(attachment): pass\n"
    assert run_pytest(*NO_WARNING, suite=suite).ret == pytest.ExitCode.OK


def test_registered_mark_is_not_refused(run_pytest, pytester):
    pytester.makeini("[pytest]\nmarkers = gates: where the gates are\n")
    suite = f"{IMPORT}@pytest.mark.gates\ndef test_a(attachment): pass\n"
    assert run_pytest(suite=suite).ret == pytest.ExitCode.OK


def test_gate_on_a_test_that_measures_nothing_is_an_error(run_pytest):
    suite = f'{IMPORT}@pytest.mark.gate("iops >= 1")\ndef test_a(attachment): pass\n'
    result = run_pytest("--st-target", "disk", suite=suite)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*ConfigError: @pytest.mark.gate('iops >= 1') judged nothing: *"])


def test_empty_client_is_refused(run_pytest):
    result = run_pytest("--st-client=", suite="def test_a(attachment): pass\n")
    assert_usage_error(result, "--st-client : no such client. There are: here\n")


def test_empty_list_of_thresholds_is_refused(run_pytest):
    result = run_pytest(suite="def test_a(attachment): pass\n", more="thresholds: {sequential: []}")
    assert_usage_error(result, "targets.yaml:", ": thresholds.sequential: an empty list gates nothing;")


@pytest.mark.parametrize("option", ["--st-results", "--st-cases", "--st-save-baseline"])
def test_a_file_that_cannot_be_written_is_refused_before_the_first_case(
    run_with_fake_metrics, pytester, option
):
    (pytester.path / "file").touch()
    result = run_with_fake_metrics(option, "file/below.json")
    assert_usage_error(result, f"{option} file/below.json: it cannot be written: ")
    assert not (pytester.path / "order").exists()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--st-results", "it cannot be written: No space left on device"),
        ("--st-cases", "it cannot be written: No space left on device"),
        ("--st-save-baseline", "not a directory or a .json file"),
        ("--st-baseline", "neither a file nor a directory"),
    ],
)
def test_a_full_device_is_refused_and_does_not_hide_the_targets_file(run_with_fake_metrics, option, message):
    """pytest takes /dev/full for the place of its rootdir, because it exists."""
    assert_usage_error(run_with_fake_metrics(option, "/dev/full"), f"{option} /dev/full: {message}")


def test_a_results_file_elsewhere_can_be_appended_to(run_with_fake_metrics, tmp_path_factory):
    results = str(tmp_path_factory.mktemp("elsewhere") / "results.jsonl")
    for _ in range(2):  # it exists the second time
        run_with_fake_metrics("--st-results", results).assert_outcomes(passed=2)


def test_the_targets_file_of_the_run_is_named(run_with_fake_metrics, pytester):
    result = run_with_fake_metrics()
    result.stdout.fnmatch_lines([f"targets: {pytester.path}/targets.yaml"])


@pytest.mark.parametrize("seconds", ["nan", "-1", "inf", "soon"])
def test_a_timeout_is_a_number_of_seconds(pytester, seconds):
    result = pytester.runpytest_subprocess(f"--st-lock-timeout={seconds}")
    result.stderr.fnmatch_lines(
        [f"*--st-lock-timeout: expected a number of seconds, such as 60, not '{seconds}'"]
    )
    assert result.ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.parametrize(("arguments", "times"), [((), 2), (("-qq",), 1), (("-n", "2"), 2)])
def test_a_plain_secret_is_named_at_the_start_and_at_the_end(pytester, arguments, times):
    pytester.makefile(".yaml", targets=SHARE.replace("$SMB_PASSWORD", "hunter22"))
    pytester.makepyfile("def test_nothing(): pass")
    result = pytester.runpytest_subprocess(*arguments)
    result.stdout.fnmatch_lines(["WARNING *targets.yaml:10:15: password is plain text in the file.*"] * times)
    result.stdout.no_fnmatch_line("*hunter22*")


def test_the_list_of_variants_names_a_plain_secret(tmp_path, monkeypatch, capsys):
    (tmp_path / "targets.yaml").write_text(SHARE.replace("$SMB_PASSWORD", "hunter22"))
    monkeypatch.chdir(tmp_path)
    assert main(LIST) == 0
    text = (
        "storagetest: warning: targets.yaml:10:15: password is plain text in the file. Write ${env:NAME} or"
    )
    assert capsys.readouterr().err.startswith(text)
