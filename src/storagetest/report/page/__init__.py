"""The comparison report: one HTML file of our own, whole in itself. A section of it is one module here."""
