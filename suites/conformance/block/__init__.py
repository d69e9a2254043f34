"""Cases on a block device, through a client's kernel."""
