"""Lustre: layouts, and the coherence of two clients, through the mount."""
