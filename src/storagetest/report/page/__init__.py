"""The comparison report: one self-contained HTML file. Each section is one module of this package."""
