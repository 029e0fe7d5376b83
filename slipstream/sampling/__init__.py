"""Laws, noise and verification: what makes speculation exact."""
