"""NFS version 3 (RFC 1813), with MOUNT 3, NLM 4 and NSM."""
