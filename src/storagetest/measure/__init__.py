"""Samples, histograms and statistics. Pure, and without an opinion."""
