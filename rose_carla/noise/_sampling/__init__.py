"""Compiled loops of the noise: exact draws of kernels and of normal numbers."""
