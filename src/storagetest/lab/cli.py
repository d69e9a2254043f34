"""``storagetest lab``: up, down, status, ssh, image.

What cannot be had is one clear sentence on stderr, and status 2.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from storagetest.errors import LabError
from storagetest.lab import image, roles, status
from storagetest.lab.lab import Lab
from storagetest.lab.status import LabStatus

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001  # it has no public name
    Command = Callable[[argparse.Namespace], int]

__all__ = ["add_parser"]

_DEFAULT = "default"


def add_parser(subparsers: Subparsers) -> None:
    """Add ``lab`` and its subcommands; each sets ``func(args) -> int``."""
    lab = subparsers.add_parser("lab", help="a lab of virtual machines to test against")
    commands = lab.add_subparsers(metavar="COMMAND", required=True)

    up = _command(commands, "up", _up, "start a lab and leave it up")
    up.add_argument("--clients", type=int, default=2, metavar="N", help="how many clients (default: 2)")
    _appliance(up, "what serves")
    up.add_argument("--overlay", type=Path, metavar="DIR", help="a directory tree to lay over the image")
    up.add_argument("--owner", type=int, metavar="PID", help="end the lab when this process ends")

    _command(commands, "down", _down, "end a lab")

    show = _command(commands, "status", _status, "what is up, and where")
    show.add_argument("--json", action="store_true", help="as JSON")

    ssh = _command(commands, "ssh", _ssh, "run a command, or a shell, on a machine of a lab")
    ssh.add_argument("host", metavar="HOST", help="appliance, client1, client2 …")
    ssh.add_argument("argv", nargs="*", metavar="CMD", help="after --; without it, a shell")

    images = _command(commands, "image", _image, "the image that the machines start from")
    _appliance(images, "whose image")
    images.add_argument("--build", action="store_true", help="build it now unless it is built")
    images.add_argument("--print-kernel", action="store_true", help="print its kernel's release")


def _appliance(parser: argparse.ArgumentParser, what: str) -> None:
    known = ", ".join(roles.names())
    parser.add_argument("--appliance", default="kernel", metavar="ROLE", help=f"{what}: {known}")


def _command(commands: Subparsers, name: str, function: Command, help_text: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=help_text, description=help_text)
    if name != "image":
        parser.add_argument("--name", default=_DEFAULT, help=f"the lab's name (default: {_DEFAULT})")
    parser.set_defaults(func=_with_one_sentence(function))
    return parser


def _with_one_sentence(function: Command) -> Command:
    @functools.wraps(function)
    def wrapped(args: argparse.Namespace) -> int:
        try:
            return function(args)
        except LabError as error:
            print(f"storagetest lab: {error}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print("storagetest lab: interrupted, nothing is left", file=sys.stderr)
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
        progress=_progress,
    )
    print(lab.targets_yaml)
    return 0


def _down(args: argparse.Namespace) -> int:
    there = Lab.end(args.name)
    _progress(f"lab {args.name} is {'down' if there else 'not up'}")
    return 0


def _status(args: argparse.Namespace) -> int:
    lab = Lab.find(args.name)
    if lab is None:
        others = Lab.names()
        known = f"; up: {', '.join(others)}" if others else ""
        raise LabError(f"lab {args.name} is not up{known}")
    found = lab.status()
    print(status.dump(found) if args.json else _described(found), end="")
    return 0


def _described(lab: LabStatus) -> str:
    lines = [
        f"{lab.name}: {lab.shape.describe()}, {lab.accelerator}",
        f"image {lab.image}, Linux {lab.kernel_release}, up after {lab.seconds:.1f} s",
    ]
    if lab.owner is not None:
        lines.append(f"ends with process {lab.owner}")
    for host in lab.hosts:
        ports = ", ".join(f"{what} {port}" for what, port in host.ports.items())
        lines.append(f"  {host.name}: {host.state}, {host.address}, at 127.0.0.1: {ports}")
    return "\n".join([*lines, f"targets: {lab.targets}", f"ssh -F {lab.ssh_config} HOST", ""])


def _ssh(args: argparse.Namespace) -> int:
    lab = Lab.find(args.name)
    if lab is None:
        raise LabError(f"lab {args.name} is not up: `storagetest lab up` starts it")
    # One word is text for the shell there, as with ssh itself.
    argv = lab.ssh_argv(args.host, ["bash", "-c", *args.argv] if len(args.argv) == 1 else args.argv)
    os.execvp(argv[0], argv)


def _image(args: argparse.Namespace) -> int:
    recipe = roles.load(args.appliance).recipe
    found = image.build(recipe, _progress) if args.build else image.find(recipe)
    if found is None:
        command = f"storagetest lab image --appliance {args.appliance} --build"
        raise LabError(f"the image is not built yet: `{command}` builds it")
    print(found.kernel_release if args.print_kernel else found.path)
    return 0
