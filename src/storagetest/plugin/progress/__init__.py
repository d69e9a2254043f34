"""Live progress on the terminal, in a log and from xdist workers."""
