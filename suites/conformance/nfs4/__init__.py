"""NFSv4.0, 4.1 and 4.2 on the wire (RFC 7530, RFC 8881, RFC 7862, RFC 8276)."""
