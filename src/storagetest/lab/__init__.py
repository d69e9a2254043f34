"""A hermetic lab: one appliance that serves storage and clients that use it, as rootless virtual machines.

::

    lab = Lab.up(clients=2, owner=os.getpid(), progress=print)
    subprocess.run(lab.ssh_argv("client1", ["uname", "-r"]), check=True)
    lab.vm("appliance").pause()
    lab.down()

Real servers, real kernel clients, a real network between them, and nothing on this machine but files in the
user's cache and state directories. This package knows nothing of pytest.
"""

from __future__ import annotations

from storagetest.lab.faults import Network, Vm
from storagetest.lab.lab import Lab
from storagetest.lab.status import HostStatus, LabStatus, Shape

__all__ = ["HostStatus", "Lab", "LabStatus", "Network", "Shape", "Vm"]
