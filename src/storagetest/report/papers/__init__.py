"""The page of published experiments: their tables, figures and claims next to what a rerun measured."""
