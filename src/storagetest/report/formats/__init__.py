"""Report formats: one module each, which is a sub-command of ``storagetest report``."""
