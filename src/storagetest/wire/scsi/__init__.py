"""SCSI codecs for conformance cases: CDBs, sense, INQUIRY and VPD pages, reservations (SPC-4, SBC-3)."""
