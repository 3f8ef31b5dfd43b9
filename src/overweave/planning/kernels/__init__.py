"""Compiled parts of planning; each file stands alone, because a kernel's cache does not see changes of other files."""
