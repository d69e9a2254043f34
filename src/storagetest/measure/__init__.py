"""Samples, histograms and statistics. Pure; verdicts are in :mod:`storagetest.verdict`."""
