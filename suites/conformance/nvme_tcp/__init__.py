"""NVMe/TCP on the wire (NVMe TCP Transport, NVMe Base, NVM Command Set)."""
