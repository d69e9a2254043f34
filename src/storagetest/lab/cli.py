"""``storagetest lab``: the commands up, down, status, ssh and image.

An error is one line on stderr and exit status 2.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from storagetest.errors import LabError
from storagetest.lab import image, overlay_check, roles, status
from storagetest.lab.lab import Lab
from storagetest.lab.status import LabStatus

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001  # argparse has no public name
    Command = Callable[[argparse.Namespace], int]

_DEFAULT = "default"


def add_parser(subparsers: Subparsers) -> None:
    """Add ``lab`` and its commands; each sets ``func(args) -> int``."""
    lab = subparsers.add_parser("lab", help="run a lab of virtual machines with targets and clients")
    commands = lab.add_subparsers(metavar="COMMAND", required=True)

    up = _command(commands, "up", _up, "start a lab; it runs until `lab down`")
    up.add_argument("--clients", type=int, default=2, metavar="N", help="number of clients (default: 2)")
    _add_appliance(up)
    up.add_argument("--overlay", type=Path, metavar="DIR", help="directory tree to mount over the image")
    up.add_argument(
        "--cold", action="store_true", help="boot the machines; neither use nor make a snapshot of them"
    )
    up.add_argument("--owner", type=int, metavar="PID", help="end the lab when this process ends")

    _command(commands, "down", _down, "end a lab")

    show = _command(commands, "status", _status, "print the state, addresses and ports of a lab")
    show.add_argument("--json", action="store_true", help="print JSON")

    ssh = _command(commands, "ssh", _ssh, "run a command or a shell on a machine of a lab")
    ssh.add_argument("host", metavar="HOST", help="appliance, client1, client2 …")
    ssh.add_argument("argv", nargs="*", metavar="CMD", help="command after --; default: a shell")

    images = _command(commands, "image", _image, "print the path of the machines' image")
    _add_appliance(images)
    images.add_argument("--build", action="store_true", help="build the image if the cache does not have it")
    images.add_argument(
        "--print-kernel", action="store_true", help="print the kernel release instead of the path"
    )
    images.add_argument(
        "--check-overlay", type=Path, metavar="DIR",
        help="list what the directory tree lacks to be an overlay for the role's services; exit status 1 if "
        "something is missing",
    )  # fmt: skip


def _add_appliance(parser: argparse.ArgumentParser) -> None:
    text = f"role of the appliance: {', '.join(roles.names())} (default: kernel)"
    parser.add_argument("--appliance", type=_role, default="kernel", metavar="ROLE", help=text)


def _role(name: str) -> str:
    """Return the present name of a role; print the warning about a former name as one line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        name = roles.current_name(name)
    for warning in caught:
        _progress(f"storagetest lab: warning: {warning.message}")
    return name


def _command(commands: Subparsers, name: str, function: Command, help_text: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=help_text, description=help_text)
    if name != "image":
        parser.add_argument("--name", default=_DEFAULT, help=f"the lab's name (default: {_DEFAULT})")
    parser.set_defaults(func=_with_one_line_error(function))
    return parser


def _with_one_line_error(function: Command) -> Command:
    @functools.wraps(function)
    def wrapped(args: argparse.Namespace) -> int:
        try:
            return function(args)
        except LabError as error:
            print(f"storagetest lab: {error}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print("storagetest lab: interrupted; the lab was removed", file=sys.stderr)
            return 130

    return wrapped


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _up(args: argparse.Namespace) -> int:
    lab = Lab.up(
        args.name,
        clients=args.clients,
        appliance=args.appliance,
        overlay=args.overlay,
        owner=args.owner,
        cold=args.cold,
        progress=_progress,
    )
    print(lab.targets_yaml)
    return 0


def _down(args: argparse.Namespace) -> int:
    existed = Lab.end(args.name)
    _progress(f"lab {args.name} is {'down' if existed else 'not up'}")
    return 0


def _status(args: argparse.Namespace) -> int:
    lab = Lab.find(args.name)
    if lab is None:
        others = Lab.names()
        known = f". Running labs: {', '.join(others)}" if others else ""
        raise LabError(f"lab {args.name} is not up{known}")
    found = lab.status()
    print(status.dump(found) if args.json else _format_status(found), end="")
    return 0


def _format_status(lab: LabStatus) -> str:
    lines = [
        f"{lab.name}: {lab.shape.describe()}, {lab.accelerator}",
        f"image {lab.image}, Linux {lab.kernel_release}, {lab.start} in {lab.seconds:.1f} s",
    ]
    if lab.owner is not None:
        lines.append(f"owner: process {lab.owner}")
    for host in lab.hosts:
        ports = ", ".join(f"{name} {port}" for name, port in host.ports.items())
        lines.append(f"  {host.name}: {host.state}, {host.address}, ports at 127.0.0.1: {ports}")
    return "\n".join([*lines, f"targets: {lab.targets}", f"ssh -F {lab.ssh_config} HOST", ""])


def _ssh(args: argparse.Namespace) -> int:
    lab = Lab.find(args.name)
    if lab is None:
        raise LabError(f"lab {args.name} is not up. Run `storagetest lab up`.")
    # A single argument is shell text, as with ssh.
    argv = lab.ssh_argv(args.host, ["bash", "-c", *args.argv] if len(args.argv) == 1 else args.argv)
    os.execvp(argv[0], argv)


def _image(args: argparse.Namespace) -> int:
    recipe = roles.load(args.appliance).recipe
    found = image.build(recipe, _progress) if args.build else image.find(recipe)
    if found is None:
        command = f"storagetest lab image --appliance {args.appliance} --build"
        raise LabError(f"the image is not built yet. Run `{command}`.")
    if args.check_overlay is not None:
        return _check_overlay(args, found)
    print(found.kernel_release if args.print_kernel else found.path)
    return 0


def _check_overlay(args: argparse.Namespace, built: image.Image) -> int:
    """Print a line for each thing that the services of the role need from an overlay."""
    needing = [service for service in roles.load(args.appliance).services if service.overlay is not None]
    if not needing:
        raise LabError(f"--check-overlay: no service of the role {args.appliance} needs an overlay")
    missing = 0
    for service in needing:
        assert service.overlay is not None
        print(f"{service.name}, for Linux {built.kernel_release} of the image:")
        for finding in overlay_check.check(args.check_overlay, service.overlay, built.kernel_release):
            missing += bool(finding.problem)
            print(
                f"  {'NO' if finding.problem else 'ok'}  {finding.item}: {finding.problem or finding.purpose}"
            )
    print(
        f'{missing} missing or unusable: docs/lab.md, "Lustre", has what the tree contains'
        if missing
        else f"complete: storagetest lab up --overlay {args.check_overlay}"
    )
    return 1 if missing else 0
