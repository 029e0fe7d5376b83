"""What a provider allows each tenant: read, checked, watched, held to."""
