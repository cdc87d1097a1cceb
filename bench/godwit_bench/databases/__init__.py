"""Databases that are compared with godwit."""
