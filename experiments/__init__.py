"""Experiments with quapy-nemsis, run from a clone: ``python -m experiments --help`` lists them."""
