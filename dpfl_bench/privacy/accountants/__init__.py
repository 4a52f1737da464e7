"""The accountants, one file each."""
