"""iSCSI and SCSI on the wire (RFC 7143, RFC 7144, SPC, SBC)."""
