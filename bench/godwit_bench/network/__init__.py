"""Emulated network paths, and pools of servers on emulated hosts."""
