"""Mutation run of NVMe/TCP: the small controller of tests/controllers, which has no known issues."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from control_port import controls
from mutation_run import MutationRun, TargetKind
from nvme_controlled import ControlledServer
from nvme_namespace import ControllerConfig
from nvme_tcp_mutants import MUTANTS
from nvme_tcp_proxy_connection import splitter
from nvme_tcp_server import NQN, Server

NAMESPACE = "uuid.22222222-2222-4222-8222-2222222222"
"""Name of each namespace, without the two digits of its NSID."""

UNANNOUNCED = (
    "NVA-ANNOUNCED-",
    "NVA-LOG-ERROR-LARGE",
    "NVA-OACS-NAMESPACES",
    "NVB-FLUSH-ALL",
    "NVB-MOST-VERIFY",
    "NVB-MOST-ZEROES",
    "NVA-RESIZE-",
    "NVA-RESTART-",
    "NVB-RESIZE-",
    "NVB-RESTART-",
    "NVR-PTPL-LACKS",
    "NVR-RESTART-",
)
"""Starts of the cases of what most controllers here lack: what a mutant announces, a large namespace, and an
administrator."""

LARGE = 132_000
"""Blocks of a namespace of which more than 65,536 may be overwritten: the second half."""

TIMEOUT = 1.0
"""Deadline of a case on a mutant, in seconds; the controller responds within milliseconds."""


@contextlib.contextmanager
def serve(config: ControllerConfig | None = None) -> Iterator[tuple[str, int]]:
    """Start a new controller, so that mutants do not affect each other."""
    with Server(personality=config) as server:
        yield "127.0.0.1", server.port


@contextlib.contextmanager
def serve_controlled(file: Path) -> Iterator[tuple[str, int]]:
    """Start a new controller that has an administrator, who finds it by ``file``."""
    with ControlledServer(file) as server:
        yield "127.0.0.1", server.port


def mutation_run() -> MutationRun:
    """Return the mutation run."""
    options = {"protocol": "nvme-tcp", "nqn": NQN, "erase": f"{NAMESPACE}01"}
    two = {**options, "more_namespaces": [{"namespace": 2, "erase": f"{NAMESPACE}02"}]}
    file = Path(tempfile.gettempdir(), f"storagetest-controlled-{os.getpid()}")
    kinds = {
        "second": TargetKind(two, partial(serve, ControllerConfig(discovered=6)), fresh=True),
        "fused": TargetKind(two, partial(serve, ControllerConfig(fuses=True)), fresh=True),
        "gaps": TargetKind(options, partial(serve, ControllerConfig(nsids=(1, 3))), fresh=True),
        "large": TargetKind(
            options, partial(serve, ControllerConfig(nsids=(1,), blocks=LARGE, elpe=127)), fresh=True
        ),
        "controlled": TargetKind(
            options,
            partial(serve_controlled, file),
            fresh=True,
            controls=lambda _: controls(file),
        ),
    }
    modules = {
        "fused": "test_*fused.py",
        "second": "test_*[!d].py",  # all but test_*fused.py
        "gaps": "test_namespace_lists.py",
        "large": "test_upper_halves.py",
        "controlled": "test_resize.py test_restart.py",
    }
    return MutationRun("nvme_tcp", MUTANTS, kinds, splitter, modules, timeout=TIMEOUT)
