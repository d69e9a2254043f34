"""A hermetic lab: one appliance that serves storage, and clients, as virtual machines without root.

::

    lab = Lab.up(clients=2, owner=os.getpid(), progress=print)
    subprocess.run(lab.ssh_argv("client1", ["uname", "-r"]), check=True)
    lab.vm("appliance").pause()
    lab.down()

The lab has real servers and kernel clients with a network between them. On the host it only creates files in
the user's cache and state directories. This package does not depend on pytest.
"""

from __future__ import annotations

from storagetest.lab.fault_injection import FaultableVm, Network
from storagetest.lab.lab import Lab
from storagetest.lab.status import HostStatus, LabSpec, LabStatus

__all__ = ["FaultableVm", "HostStatus", "Lab", "LabSpec", "LabStatus", "Network"]
