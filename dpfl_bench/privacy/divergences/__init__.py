"""The mathematics behind the accountants: privacy profiles, privacy losses, Rényi divergences."""
