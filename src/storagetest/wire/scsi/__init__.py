"""SCSI as a conformance case needs it: CDBs, sense, INQUIRY and VPD pages, reservations (SPC-4, SBC-3)."""
