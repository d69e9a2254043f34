"""NFS version 3, MOUNT, NLM and RPC on the wire: RFC 1813 and RFC 5531."""
