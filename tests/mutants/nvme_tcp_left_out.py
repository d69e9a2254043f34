"""Ids of cases that a sound controller skips, because they need more than it announces."""

TWO_ENDS = tuple(f"NVB-TWO-END-{name}" for name in ("COMPARE", "COPY", "UNC", "VERIFY", "WRITE", "ZEROES"))
"""Cases of blocks past the end of two namespaces."""

OFFSETS = ("NVT-OFFSET-COMPARE", "NVT-OFFSET-COPY", "NVT-OFFSET-REGISTER")
"""Cases of data at an offset of a capsule, which SGLS announces."""

APART = (
    "NVR-NOTICE-APART",
    *(f"NVR-APART-{name}" for name in ("ABORT", "ACQUIRE", "CLEAR", "EXCLUDES")),
    *(f"NVR-APART-{name}" for name in ("PREEMPT", "RELEASE", "REPLACE", "UNREGISTER")),
)
"""Cases of reservations of two namespaces."""

OF_NO_NAMESPACE = (
    "NVB-NSID-COPY",
    "NVB-NSID-UNC",
    *(f"NVR-NSID-{name}" for name in ("ACQUIRE", "REGISTER", "RELEASE", "REPORT")),
)
"""Cases of NSID FFFFFFFEh, which is valid if NN is as large."""

OF_MANY_AT_ONCE = (
    "NVA-SMART-MARKED",
    "NVB-CROSSED-UNIT-QUEUE",
    "NVB-TOGETHER-COMPARE",
    "NVB-TOGETHER-COPY",
    "NVR-ABORT-OWN",
)
"""Cases of two I/O queues, of several commands on one, or of many blocks that one command marks."""

QUEUES = (
    "CLEARED",
    "EA",
    "EARO",
    "HOLDER",
    "HOSTID-0",
    "LATER",
    "LEFT",
    "PREEMPTED",
    "REGISTERED",
    "RELEASED",
    "UNREGISTERED",
    "WE",
    "WERO",
)
"""Ends of the names of cases that need two I/O queues."""
