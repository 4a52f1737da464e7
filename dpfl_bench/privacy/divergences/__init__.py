"""The mathematics behind the accountants: closed forms, privacy loss distributions, Rényi divergences."""
