"""Collecting body-shape data: planned, checked, moved, captured, resumed."""
