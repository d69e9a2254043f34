"""Report formats: ONE module each, which is a sub-command of ``storagetest report``."""
