"""Experiments with quapy-nemsis, run from a clone: ``python -m experiments.demo`` and so on."""
