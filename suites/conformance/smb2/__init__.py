"""SMB 2 and 3 on the wire (MS-SMB2, MS-FSCC)."""
