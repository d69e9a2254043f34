"""What users run: ``pytest suites`` in a checkout, else ``pytest --pyargs storagetest.suites``."""
