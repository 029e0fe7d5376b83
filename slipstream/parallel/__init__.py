"""One model spread over several processes, its ranks: rank 0 decides, the others do as it does."""
